// Package fleet has the common parts of all simulated fleets: MySQL, the network, and processes that are started,
// stopped and killed. Each simulation decides the shape of its fleet, its faults, and its checks.
package fleet

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
)

// World is a MySQL, with the links of all processes to it and to their regions' origins. All of it belongs to the same
// bubble.
type World struct {
	Counts   *memstore.Counts
	Feed     *memstore.Feed
	Database network.Database
	Origins  network.OriginMeters // of all regions
	MySQL    network.MySQLMeters

	seed   uint64
	killed sync.WaitGroup // processes that are stopping

	mu    sync.Mutex
	links []*network.Link // of all processes, including those that have ended
}

// NewWorld returns a World without processes. database is the purpose of the stream that MySQL's failures are drawn
// from.
func NewWorld(seed uint64, database string) *World {
	w := &World{seed: seed, Counts: memstore.NewCounts(memstore.CountsOptions{})}
	w.Feed = memstore.NewFeed(memstore.FeedOptions{Settings: w.Counts.SettingsVersion})
	w.Database.Random = w.Stream(database)
	return w
}

// Stream returns a separate source of random numbers for each purpose, so that the draws of an actor do not change
// another actor's.
func (w *World) Stream(purpose string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(purpose))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// Link makes a process's link to a server. Each kind of call draws from a separate stream: purpose returns the stream's
// purpose.
func (w *World) Link(p network.Profile, purpose func(op string) string) *network.Link {
	l := &network.Link{Profile: p, Stream: func(op string) *rand.Rand { return w.Stream(purpose(op)) }}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links = append(w.links, l)
	return l
}

// End runs stops, which must stop the processes, concurrently. It then waits for killed processes, and for calls whose
// callers have gone.
func (w *World) End(stops ...func()) {
	var stopping sync.WaitGroup
	for _, stop := range stops {
		stopping.Go(stop)
	}
	stopping.Wait()
	w.killed.Wait()
	for _, l := range w.links {
		l.Calls.Wait()
	}
}
