package watch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane"
)

// HealthReader returns the document of the watch on Restate. If there is no fresh document, for example because Restate
// is down, it looks itself. All methods are safe for concurrent use.
type HealthReader struct {
	Stored func(context.Context) (HealthDocument, error) // the watch's own
	Watch  *Watch
	Every  time.Duration // the watch's interval: a document older than three intervals is stale
	Now    func() time.Time

	mu   sync.Mutex
	last HealthDocument // keeps since when the reader's own findings last
}

// storedTimeout bounds the read of the stored document, because a look takes time too.
const storedTimeout = 3 * time.Second

// Health never fails.
func (h *HealthReader) Health(ctx context.Context) HealthDocument {
	stored, err := h.stored(ctx)
	now := h.Now()
	age := now.Sub(time.UnixMilli(stored.AtMs))
	// a document that is as far ahead was made by a clock that has been set right since, and may be of any age
	if err == nil && age.Abs() <= 3*h.Every+lookTimeout {
		h.remember(stored)
		return stored
	}
	look := h.Watch.Look(ctx, now)
	switch {
	case errors.Is(err, controlplane.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		look.add(restateDown(err))
	case err != nil:
		look.add(watchLate(err.Error()))
	case stored.AtMs == 0:
		look.add(watchLate("the watch on Restate has not run yet"))
	case age < 0:
		look.add(watchLate("the document of the watch on Restate is ahead of the clock by " +
			age.Abs().Round(time.Second).String()))
	default:
		look.add(watchLate(fmt.Sprintf("the watch on Restate last ran %v ago", age.Round(time.Second))))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && stored.AtMs > h.last.AtMs && age >= 0 {
		h.last = stored
	}
	h.last = h.last.Next(look)
	h.last.Live = true
	return h.last
}

func (h *HealthReader) stored(ctx context.Context) (HealthDocument, error) {
	ctx, cancel := context.WithTimeout(ctx, storedTimeout)
	defer cancel()
	return h.Stored(ctx)
}

func (h *HealthReader) remember(d HealthDocument) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = d
}

func watchLate(what string) Finding {
	return Finding{
		Kind: FindingWatchLate, Severity: SeverityWarning, What: what,
		Do: "weir-control starts it again within seconds; if this stays, its log says why. The findings here were made for " +
			"this call.",
	}
}
