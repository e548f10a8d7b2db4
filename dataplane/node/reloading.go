package node

import (
	"context"
	"time"
)

// Reload is something that was read from files and may change while the node runs.
// Check reads them again, from one goroutine; with an error it keeps what it had.
type Reload struct {
	Name  string
	Check func() (changed bool, err error)
}

// reloadEvery bounds how long a changed file goes unnoticed.
const reloadEvery = 5 * time.Second

// reload checks all files until ctx is done.
func (s *Server) reload(ctx context.Context, every time.Duration) {
	for _, r := range s.config.Reloads {
		for _, outcome := range []string{"ok", "error"} {
			s.metrics.reloads.WithLabelValues(r.Name, outcome) // at 0, so that an alert sees the first
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, r := range s.config.Reloads {
				s.reloadOne(r)
			}
			s.bounds.settle()
		}
	}
}

func (s *Server) reloadOne(r Reload) {
	changed, err := r.Check()
	switch {
	case err != nil:
		s.metrics.reloads.WithLabelValues(r.Name, "error").Inc()
		s.logger.Error("changed files are not in force; going on with the last good ones", "what", r.Name, "error", err)
	case changed:
		s.metrics.reloads.WithLabelValues(r.Name, "ok").Inc()
		s.logger.Info("changed files are in force", "what", r.Name)
	}
}
