package limiter

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
)

// gate counts the calls that are inside, so that what they use is freed after the last one. The
// count is spread over cache lines: every Acquire passes here.
type gate struct {
	closed atomic.Bool
	inside [8]struct {
		atomic.Int64
		_ [56]byte
	}
}

// enter answers the counter to subtract one from when done, or nil after shut.
func (g *gate) enter() *atomic.Int64 {
	inside := &g.inside[rand.Uint32()%uint32(len(g.inside))].Int64
	inside.Add(1)
	if g.closed.Load() {
		inside.Add(-1)
		return nil
	}
	return inside
}

// shut lets nobody in any more and returns when nobody is inside. Calls inside are short.
func (g *gate) shut() {
	g.closed.Store(true)
	for i := range g.inside {
		for g.inside[i].Load() != 0 {
			runtime.Gosched()
		}
	}
}
