package sim

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// fleetRest is how long after the last request counts go on travelling.
const fleetRest = 5 * time.Second

// simulateFleet runs a scenario of relays.
func simulateFleet(s Scenario, o Options, duration time.Duration, report *Report) error {
	f := newRelayWorld(s, report.Tuning.Document, firstTraffic(report.Tuning.Document), o.Seed)
	return f.live(s, duration, report)
}

// live is a fleet's life: start, traffic, rest, stop, and the books.
func (f *relayWorld) live(s Scenario, duration time.Duration, report *Report) error {
	time.Sleep(time.Until(f.began.Add(-2 * time.Second))) // idle loops would take time, too
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	g := s.fleet.plan(f, duration)
	f.until = f.began.Add(duration)
	if err := f.bootAll(ctx); err != nil {
		return err
	}
	audit := func() { f.audit(time.Now().Add(-fleetRest)) }
	f.traffic(g, s, duration, func() {}, audit, report)
	time.Sleep(fleetRest)
	f.requests.Wait()
	stop()
	f.loops.Wait()
	var stops []func()
	for _, r := range f.regions {
		for _, made := range r.relays {
			stops = append(stops, func() { made.Stop(stopTimeout) })
		}
	}
	f.End(stops...)
	f.audit(time.Now().Add(24 * time.Hour))
	f.sum(report, f.keys, f.track.groups, &f.track.convergence)
	return nil
}

// audit compares the books with the origins for every cell that has expired before a moment.
func (f *relayWorld) audit(before time.Time) {
	f.track.closeBefore(before.UnixMilli(), func(region int, cells []window.Cell) []store.Total {
		reply, err := f.regions[region].origin.Read(context.Background(), cells) // no network in between
		if err != nil {
			f.violate(violationError, "the audit could not read an origin: %v", err)
			return nil
		}
		return reply.Totals
	})
}
