package bounded

import (
	"context"
	"log"
	"log/slog"
	"sync"
	"time"
)

// Within linesEvery callers can cause at most linesMax lines of a message, and messagesMax different messages. All
// further messages share the lines of one message.
const (
	linesEvery  = time.Minute
	linesMax    = 10
	messagesMax = 50
)

// Lines bounds the records that callers can cause in a server's log: it passes linesMax records of each message per
// minute. The first record after that minute has the number of records that were left out.
func Lines(next slog.Handler) slog.Handler { return lines{next, &budget{passed: make(map[string]int)}} }

// ErrorLog returns a value for http.Server's field ErrorLog. It logs warnings within the bounds of Lines.
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

// budget counts the records of a minute.
type budget struct {
	mu         sync.Mutex
	since      time.Time
	passed     map[string]int // by message; "" for messages above messagesMax
	withheld   int            // in this minute
	unreported int            // in earlier minutes, and not reported yet
}

// spend reports whether a record passes, and how many records of earlier minutes were left out.
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
