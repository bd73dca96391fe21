package limiter

import (
	"context"
	"errors"
	"testing"
	"time"
)

// remote is a limiter whose round trips take slots, as those of Redis do.
func remote(t *testing.T, slots int) *Limiter {
	l := newLimiter(t, open(t), TokenBucket(1, 1, time.Second))
	l.client.slots = make(chan struct{}, slots)
	return l
}

func TestRoundTripsWaitForASlotAsLongAsTheContext(t *testing.T) {
	l := remote(t, 1)
	l.client.slots <- struct{}{}
	gone, cancel := context.WithCancel(bg)
	time.AfterFunc(10*time.Millisecond, cancel)
	_, pace := l.Pace(gone, "")
	for verb, err := range map[string]error{
		"Pace": pace, "Reset": l.Reset(gone, ""), "Penalize": l.Penalize(gone, "", time.Second),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	<-l.client.slots
	if err := l.Reset(bg, ""); err != nil || len(l.client.slots) != 0 {
		t.Errorf("%v, %d slots taken", err, len(l.client.slots))
	}
}

func TestRoundTripsEndWithTheContext(t *testing.T) {
	l := remote(t, 1)
	answer, late := make(chan struct{}), make(chan int, 1)
	ctx, cancel := context.WithCancel(bg)
	call := func() int {
		cancel()
		<-answer
		return 7
	}
	if _, err := roundTrip(ctx, l, call, func(n int) { late <- n }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if len(l.client.slots) != 1 {
		t.Error("the call goes on without a slot")
	}
	close(answer)
	if n := <-late; n != 7 {
		t.Errorf("late with %d", n)
	}
	eventually(t, "slot", func() bool { return len(l.client.slots) == 0 })

	ctx, cancel = context.WithCancel(bg)
	defer cancel()
	n, err := roundTrip(ctx, l, func() int { return 8 }, func(int) { t.Error("late") })
	if n != 8 || err != nil {
		t.Error(n, err)
	}
}

// A booking or permit that nobody takes any more is given back.
func TestLateAnswersAreGivenBack(t *testing.T) {
	c := open(t)
	paced, err := c.NewLimiter("paced", Pacer(1, time.Hour, 0))
	if err != nil {
		t.Fatal(err)
	}
	held := newLimiter(t, c, Semaphore(1))
	c.slots = make(chan struct{}, 1)
	for range 20 {
		ctx, cancel := context.WithCancel(bg)
		go cancel()
		if p, err := paced.Pace(ctx, ""); err == nil {
			p.Release()
		}
		results, err := held.TryMany(ctx, Request{})
		if err == nil && results[0].Err == nil {
			results[0].Permit.Release()
		}
	}
	eventually(t, "empty limiter", func() bool {
		d, err := held.Peek(bg, "")
		return err == nil && d.Remaining == 1 && len(c.slots) == 0
	})
}
