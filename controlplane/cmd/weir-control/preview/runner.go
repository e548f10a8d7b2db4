package preview

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/previews"
)

// Argument is the program's only argument when it is called as a worker. Its main must then call Work.
const Argument = "preview-worker"

const (
	killDelay    = 2 * time.Second // between the end of a worker's time and that of its process
	lineBytesMax = 64 << 10
	stderrMax    = 8 << 10
)

// Runner is a previews.Previewer. Preview may be called at once; each call is a process.
type Runner struct {
	program string
}

// NewRunner returns a runner whose worker is the running program, or another program.
func NewRunner(program string) (*Runner, error) {
	if program != "" {
		return &Runner{program}, nil
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program that previews run in: %w", err)
	}
	return &Runner{program}, nil
}

// Preview implements previews.Previewer. Its time counts from the start of the process. A worker that has not finished
// then is ended. Its lines are the answer if both tunings are in them.
func (r *Runner) Preview(ctx context.Context, ask previews.Ask) (previews.Predictions, error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, time.Duration(ask.TimeMaxMs)*time.Millisecond)
	defer cancel()
	request, err := json.Marshal(ask)
	if err != nil {
		return previews.Predictions{}, err
	}
	worker := exec.CommandContext(ctx, r.program, Argument)
	worker.Env = append(os.Environ(), "GOMAXPROCS=1") // the rest of the machine is the control plane's
	worker.Stdin = bytes.NewReader(request)
	worker.WaitDelay = killDelay
	var problems head
	worker.Stderr = &problems
	stdout, err := worker.StdoutPipe()
	if err != nil {
		return previews.Predictions{}, err
	}
	if err := worker.Start(); err != nil {
		return previews.Predictions{}, fmt.Errorf("start a simulation: %w", err)
	}
	began := time.Now()
	answer, half, told := read(stdout, func() time.Duration { return time.Since(began) })
	ended := worker.Wait()
	switch {
	case caller.Err() != nil:
		return answer, fmt.Errorf("preview: %w", caller.Err())
	case told == nil:
		slices.SortFunc(answer.Curve, func(a, b previews.Prediction) int {
			return cmp.Compare(a.FeedIntervalMs, b.FeedIntervalMs)
		})
		if ctx.Err() != nil {
			answer.Notes = append(answer.Notes, "the curve is incomplete: the time limit was reached")
		}
		return answer, nil
	case errors.Is(told, errFewer) && ctx.Err() != nil:
		return answer, outOfTime(time.Duration(ask.TimeMaxMs)*time.Millisecond, half)
	case errors.Is(told, errFewer):
		return answer, fmt.Errorf("the simulation ended early: %w: %s", errors.Join(ended, told), &problems)
	}
	return answer, told
}

var errFewer = errors.New("fewer lines than expected")

// outOfTime names the time that would suffice, by the time of the finished half. half is 0 if not even half has
// finished.
func outOfTime(had, half time.Duration) error {
	takes, about := had, "more than "
	if half > 0 {
		takes, about = half, "about "
	}
	enough := (max(2*takes, had) * 5 / 4).Round(time.Second) // with a quarter to spare
	if enough > previews.TimeMax {
		return fmt.Errorf("%w: the simulation did not finish within %v and needs %s%v (at most %v): use a shorter "+
			"window or fewer nodes",
			controlplane.ErrInvalid, had, about, enough, previews.TimeMax)
	}
	return fmt.Errorf("%w: the simulation did not finish within %v: allow %s%v (at most %v)", controlplane.ErrInvalid,
		had, about, enough, previews.TimeMax)
}

// read takes lines until there are no more; half is when the first of the two tunings had
// been predicted.
func read(stdout io.Reader, now func() time.Duration) (answer previews.Predictions, half time.Duration, err error) {
	in := bufio.NewScanner(stdout)
	in.Buffer(nil, lineBytesMax)
	var was, is bool
	for in.Scan() {
		var l line
		if json.Unmarshal(in.Bytes(), &l) != nil {
			continue // cut off
		}
		switch {
		case l.Error != "":
			return answer, half, errors.New(l.Error)
		case l.Scale != nil:
			answer.KeysSimulated, answer.NodesSimulated, answer.Notes = int64(l.Scale.Keys), l.Scale.Nodes, l.Scale.Notes
		case l.Old != nil:
			answer.Old, was, half = *l.Old, true, now()
		case l.New != nil:
			answer.New, is = *l.New, true
		case l.Point != nil:
			answer.Curve = append(answer.Curve, *l.Point)
		}
	}
	if !was || !is {
		return answer, half, errFewer
	}
	return answer, half, nil
}

// head keeps the beginning of the written text. In a panic's text the cause is at the beginning.
type head struct{ bytes.Buffer }

// Write implements io.Writer.
func (t *head) Write(b []byte) (int, error) {
	if left := stderrMax - t.Len(); left > 0 {
		t.Buffer.Write(b[:min(left, len(b))])
	}
	return len(b), nil
}

// String returns the first line.
func (t *head) String() string {
	first, _, _ := strings.Cut(t.Buffer.String(), "\n")
	return first
}
