package limiter

import (
	"math/rand/v2"
	"runtime"
	"sync"
)

// gate bounds how many goroutines are in C at a time. One that is put off by the system there, or
// waits for a lock, keeps its thread, and the runtime starts another one for the next goroutine; a
// goroutine that waits for the gate keeps none. A call takes one of several locks by chance, which
// costs less than counting.
type gate struct {
	ways []way
}

type way struct {
	sync.Mutex
	shut bool
	_    [48]byte // a cache line each
}

// mostWays keeps threads few on machines with many processors, too.
const mostWays = 16

func newGate() gate {
	return gate{make([]way, min(2*runtime.GOMAXPROCS(0), mostWays))}
}

// enter answers the way to unlock when done.
func (g *gate) enter() *way {
	way := &g.ways[rand.Uint32N(uint32(len(g.ways)))]
	way.Lock()
	return way
}

// shut marks every way, each when nobody is in it.
func (g *gate) shut() {
	for i := range g.ways {
		g.ways[i].Lock()
		g.ways[i].shut = true
		g.ways[i].Unlock()
	}
}
