package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

func TestServer(t *testing.T) {
	client, err := limiter.Open("memory://", limiter.WithVirtualClock())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	handler, err := limited(client, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	for i := range 6 {
		r, err := http.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if want := map[bool]int{false: 200, true: 429}[i == 5]; r.StatusCode != want {
			t.Errorf("request %d: %s", i, r.Status)
		}
		if got := r.Header.Get("RateLimit-Policy"); got != `"per-address";q=5;w=1` {
			t.Errorf("RateLimit-Policy: %s", got)
		}
	}
}
