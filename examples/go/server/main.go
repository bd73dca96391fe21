// Server limits each client address to 5 requests a second and the whole server to 100 at once.
package main

import (
	"flag"
	"io"
	"log"
	"net/http"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
	"github.com/liblimiter/liblimiter/bindings/go/httplimit"
)

func main() {
	address := flag.String("listen", "localhost:8080", "where to listen")
	backend := flag.String("backend", "memory://", "where the limits live, such as redis://localhost:6379/0")
	flag.Parse()
	client, err := limiter.Open(*backend)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	handler, err := limited(client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello\n")
	}))
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening on http://%s", *address)
	log.Fatal(http.ListenAndServe(*address, handler))
}

func limited(client *limiter.Client, handler http.Handler) (http.Handler, error) {
	whole, err := client.NewLimiter("server", limiter.Semaphore(100))
	if err != nil {
		return nil, err
	}
	each, err := client.NewLimiter("address", limiter.TokenBucket(5, 5, time.Second))
	if err != nil {
		return nil, err
	}
	everybody := func(*http.Request) string { return "" }
	handler = httplimit.Middleware(whole, httplimit.Options{Key: everybody, MaxWait: time.Second, NoHeaders: true})(handler)
	return httplimit.Middleware(each, httplimit.Options{Names: []string{"per-address"}})(handler), nil
}
