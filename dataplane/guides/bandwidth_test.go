package guides

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// meter writes at most 10 MB in 10 s, and waits when the limit is reached.
type meter struct {
	ctx  context.Context
	to   io.Writer
	user *dataplane.Handle // user, err := limiter.Handle("acme", "bytes", name, 10*time.Second)
}

func (m *meter) Write(p []byte) (written int, err error) {
	for written < len(p) {
		chunk := p[written:min(written+64<<10, len(p))]
		switch d := m.user.Allow(m.ctx, 10_000_000, dataplane.Cost(len(chunk))); {
		case d.Err != nil:
			return written, d.Err
		case d.Allowed:
			n, err := m.to.Write(chunk)
			if written += n; err != nil {
				return written, err
			}
		case d.NeverPasses: // for example, an operator has blocked the user
			return written, errors.New("no chunk of this size ever passes")
		default:
			select {
			case <-time.After(d.RetryAfter):
			case <-m.ctx.Done():
				return written, m.ctx.Err()
			}
		}
	}
	return written, nil
}

func TestBytesAreMetered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user, err := alone(t).Handle("acme", "bytes", "ann", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		m := &meter{t.Context(), &got, user}
		began := time.Now()
		const size = 40_000_000
		if n, err := m.Write(make([]byte, size)); n != size || err != nil || got.Len() != size {
			t.Fatalf("%d, %v", n, err)
		}
		if took := time.Since(began); took < 25*time.Second || took > 45*time.Second {
			t.Errorf("40 MB took %v at 1 MB a second, 10 MB of which may come at once", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if n, err := (&meter{ctx, io.Discard, user}).Write(make([]byte, size)); n >= size || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%d, %v", n, err)
		}
	})
}
