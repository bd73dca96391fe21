// Client fetches the URLs on its command line, at most 4 at once and 10 a second from each host, and
// holds back from a host that asks it to.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
	"github.com/liblimiter/liblimiter/bindings/go/httplimit"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := limiter.Open("memory://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, line := range fetch(ctx, client, os.Args[1:]) {
		fmt.Println(line)
	}
}

func fetch(ctx context.Context, client *limiter.Client, urls []string) []string {
	hosts, err := client.NewLimiter("hosts", limiter.Semaphore(4), limiter.Pacer(10, time.Second, 4))
	if err != nil {
		return []string{err.Error()}
	}
	web := &http.Client{Transport: &httplimit.Transport{Limiter: hosts}}
	defer web.CloseIdleConnections()
	lines := make([]string, len(urls))
	var all sync.WaitGroup
	for i, url := range urls {
		all.Add(1)
		go func() {
			defer all.Done()
			lines[i] = get(ctx, web, url)
		}()
	}
	all.Wait()
	return lines
}

func get(ctx context.Context, web *http.Client, url string) string {
	request, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err.Error()
	}
	response, err := web.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close() // gives the permit back
	size, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s: %s, %d bytes", url, response.Status, size)
}
