package main

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestWorkers(t *testing.T) {
	most, took, err := run(context.Background(), 60)
	if err != nil {
		t.Fatal(err)
	}
	if most > 4 {
		t.Errorf("%d at once", most)
	}
	if took < 499*time.Millisecond { // 10 at once, then 50 more at 100 a second
		t.Errorf("took only %v", took)
	}
}

func TestWorkersStop(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, _, err := run(ctx, 100_000)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v to stop", took)
	}
}
