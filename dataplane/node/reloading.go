package node

import (
	"context"
	"time"
)

// Reload is state that was read from files and can change while the node runs. Check reads the files again. It is
// called from one goroutine. If it returns an error, it must keep the previous state.
type Reload struct {
	Name  string
	Check func() (changed bool, err error)

	// Soon makes Check run twice a second instead of every 5 s. Set it for files that decide which callers are allowed,
	// for example tokens.
	Soon bool
}

// These are the longest times until a changed file is read. Open streams are judged again right
// after the files of soonEvery were read, so a token is no longer accepted within a second of its
// removal from its file.
const (
	reloadEvery = 5 * time.Second
	soonEvery   = 450 * time.Millisecond
)

// reload checks all files until ctx is done.
func (s *Server) reload(ctx context.Context, every, soon time.Duration) {
	for _, r := range s.config.Reloads {
		for _, outcome := range []string{"ok", "error"} {
			s.metrics.reloads.WithLabelValues(r.Name, outcome) // at 0, so that an alert sees the first
		}
	}
	tick, often := time.NewTicker(every), time.NewTicker(soon)
	defer tick.Stop()
	defer often.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.reloadAll(false)
			s.bounds.settle()
		case <-often.C:
			s.reloadAll(true)
			s.gate.judgeAgain(time.Now())
		}
	}
}

func (s *Server) reloadAll(soon bool) {
	for _, r := range s.config.Reloads {
		if r.Soon != soon {
			continue
		}
		switch changed, err := r.Check(); {
		case err != nil:
			s.metrics.reloads.WithLabelValues(r.Name, "error").Inc()
			s.logger.Error("changed files are invalid; the last valid files stay in force", "what", r.Name, "error", err)
		case changed:
			s.metrics.reloads.WithLabelValues(r.Name, "ok").Inc()
			s.logger.Info("changed files are in force", "what", r.Name)
		}
	}
}
