package bounded

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A message that callers cause repeatedly does not fill the log, and hides no other message. The first line of a later
// minute has the number of omitted lines.
func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(Lines(slog.NewTextHandler(&out, nil)))
		for range 1000 {
			log.With("of", "a caller").Error("unsigned")
		}
		log.WithGroup("g").Warn("another")
		if n := strings.Count(out.String(), "unsigned"); n != linesMax {
			t.Errorf("%d lines, want %d", n, linesMax)
		}
		if !strings.Contains(out.String(), "another") {
			t.Error("another message is hidden")
		}
		out.Reset()
		time.Sleep(linesEvery)
		log.Info("later")
		log.Info("later")
		if want := fmt.Sprintf("left_out=%d", 1000-linesMax); strings.Count(out.String(), want) != 1 {
			t.Errorf("%s, want %s once", out.String(), want)
		}
	})
}

// Messages that are all different are bounded together.
func TestDifferentLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		server := ErrorLog(slog.New(slog.NewTextHandler(&out, nil)))
		for i := range 10_000 {
			server.Printf("handshake with 10.0.0.1:%d", i)
		}
		if n := strings.Count(out.String(), "\n"); n != messagesMax+linesMax {
			t.Errorf("%d lines, want %d", n, messagesMax+linesMax)
		}
	})
}
