package benchmarks

import (
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// Weir gets three names, a limit and a duration with every decision. The others got theirs beforehand, and get a single
// string.
func ask(identifier string, limit int64) dataplane.Request {
	return dataplane.Request{
		Workspace: "acme", Namespace: "api", Identifier: identifier,
		Limit: limit, Duration: time.Hour, Cost: 1,
	}
}

// newWeir makes a limiter for a single process whose table has room for every case. The
// loops run, as they would.
func newWeir() (l *dataplane.Limiter, stop func()) {
	l = must(dataplane.New(dataplane.Config{EntriesMax: 2_000_000}))
	if err := l.Start(background); err != nil {
		panic(err)
	}
	return l, func() { _ = l.Stop(background) } // sends nothing to anybody: cannot fail
}

var weir = workload.Limiter{Name: "weir", New: func(limit int64) (workload.Decide, func()) {
	l, stop := newWeir()
	return func(identifier string) bool {
		return l.Allow(background, ask(identifier, limit)).Allowed
	}, stop
}}

var weirBatch = workload.Limiter{Name: "weir", New: func(limit int64) (workload.Decide, func()) {
	l, stop := newWeir()
	batch := make([]dataplane.Request, 4)
	for i := range batch {
		batch[i] = ask(workload.Identifier(i), limit)
	}
	var decisions []dataplane.Decision
	return func(string) bool {
		b := l.AppendAllowMany(background, decisions[:0], batch)
		decisions = b.Decisions
		return b.Allowed
	}, stop
}}

var weirHandle = workload.Limiter{Name: "weir", New: func(limit int64) (workload.Decide, func()) {
	l, stop := newWeir()
	key := handle(l)
	return func(string) bool { return key.Allow(background, limit, 1).Allowed }, stop
}}

// A benchmark uses a single reading of the clock: Weir accepts times within a minute of its own.
var weirHandleAt = workload.Limiter{Name: "weir", New: func(limit int64) (workload.Decide, func()) {
	l, stop := newWeir()
	key, now := handle(l), time.Now()
	return func(string) bool { return key.AllowAt(background, now, limit, 1).Allowed }, stop
}}

func handle(l *dataplane.Limiter) *dataplane.Handle {
	return must(l.Handle("acme", "api", workload.Identifier(0), time.Hour))
}
