package limiter

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

var bg = context.Background()

// TestMain fails the run if a goroutine of this package outlives its client.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(); left != "" && code == 0 {
		fmt.Println("goroutines left behind:\n" + left)
		code = 1
	}
	os.Exit(code)
}

// leaked are the stacks of this package's goroutines that do not end by themselves soon.
func leaked() string {
	for wait := time.Millisecond; ; wait *= 2 {
		runtime.GC() // a client's log goroutine ends when the client is collected
		buf := make([]byte, 1<<20)
		var ours []string
		for i, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if i > 0 && strings.Contains(stack, "bindings/go") {
				ours = append(ours, stack)
			}
		}
		if len(ours) == 0 || wait > time.Second {
			return strings.Join(ours, "\n\n")
		}
		time.Sleep(wait)
	}
}

func open(t testing.TB, options ...ClientOption) *Client {
	t.Helper()
	c, err := Open("memory://", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func newLimiter(t testing.TB, c *Client, limits ...Limit) *Limiter {
	t.Helper()
	l, err := c.NewLimiter(t.Name(), limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustAcquire(t testing.TB, l *Limiter, key string, options ...Option) *Permit {
	t.Helper()
	p, err := l.TryAcquire(key, options...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// untilWaiting returns when n waits are under way.
func untilWaiting(t testing.TB, c *Client, n uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d waits", n), func() bool { return stats(t, c).Waiting == n })
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

func stats(t testing.TB, c *Client) Stats {
	t.Helper()
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
