package bounded

import (
	"context"
	"log"
	"log/slog"
	"sync"
	"time"
)

// Callers cause at most so many lines of one message in linesEvery, and so many different messages; further messages
// have one message's lines together.
const (
	linesEvery  = time.Minute
	linesMax    = 10
	messagesMax = 50
)

// Lines bounds what callers can have a server log: it passes linesMax records of each message a minute. The first
// record after that minute says how many were left out.
func Lines(next slog.Handler) slog.Handler { return lines{next, &budget{passed: make(map[string]int)}} }

// ErrorLog is for http.Server's field of that name: warnings, within the bounds of Lines.
func ErrorLog(logger *slog.Logger) *log.Logger {
	return slog.NewLogLogger(Lines(logger.Handler()), slog.LevelWarn)
}

type lines struct {
	slog.Handler
	budget *budget
}

func (l lines) Handle(ctx context.Context, record slog.Record) error {
	ok, leftOut := l.budget.spend(record.Message, record.Time)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		record = record.Clone()
		record.AddAttrs(slog.Int("left_out", leftOut))
	}
	return l.Handler.Handle(ctx, record)
}

func (l lines) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lines{l.Handler.WithAttrs(attrs), l.budget}
}

func (l lines) WithGroup(name string) slog.Handler { return lines{l.Handler.WithGroup(name), l.budget} }

// budget is what a minute's records have left.
type budget struct {
	mu         sync.Mutex
	since      time.Time
	passed     map[string]int // by the message; "" for those beyond messagesMax
	withheld   int            // in this minute
	unreported int            // in earlier ones, and not said yet
}

// spend tells whether a record is passed, and how many before its minute were not.
func (b *budget) spend(message string, now time.Time) (ok bool, leftOut int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.since) >= linesEvery {
		b.since = now
		b.unreported += b.withheld
		b.withheld = 0
		clear(b.passed)
	}
	if _, known := b.passed[message]; !known && len(b.passed) >= messagesMax {
		message = ""
	}
	if b.passed[message] >= linesMax {
		b.withheld++
		return false, 0
	}
	b.passed[message]++
	leftOut, b.unreported = b.unreported, 0
	return true, leftOut
}
