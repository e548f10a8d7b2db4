package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
)

// devtools speaks Chromium's DevTools protocol to a browser of its own. Drivers that are made for tests keep the pages'
// resources, which would distort measurements of memory. It is for a single goroutine.
type devtools struct {
	t       testing.TB
	in      io.Writer
	answers chan answered
	last    int
}

type answered struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// answerMost bounds the time of a command, on a busy machine.
const answerMost = 2 * time.Minute

// browse starts Chromium, which speaks over pipes and listens nowhere.
func browse(t testing.TB) *devtools {
	t.Helper()
	profile, err := os.MkdirTemp("", "weir-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, chromium(t), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-background-timer-throttling", "--disable-renderer-backgrounding",
		"--disable-backgrounding-occluded-windows", "--enable-precise-memory-info", "--remote-debugging-pipe", "--user-data-dir="+profile, "about:blank")
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4, as Chromium has it
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = theirIn.Close(), theirOut.Close()
	b := &devtools{t: t, in: in, answers: make(chan answered)}
	var reading sync.WaitGroup
	reading.Go(func() { b.read(ctx, out) })
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
		_, _ = in.Close(), out.Close()
		reading.Wait()
		discard(t, profile)
	})
	return b
}

// discard removes a profile. Processes of the browser write to it until they notice that it is gone.
func discard(t testing.TB, profile string) {
	t.Helper()
	await.NoError(t, "the browser's profile is removed", func() error { return os.RemoveAll(profile) })
}

// read passes answers on, and drops events.
func (b *devtools) read(ctx context.Context, out io.Reader) {
	defer close(b.answers)
	for in := bufio.NewReader(out); ; {
		message, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var a answered
		if err := json.Unmarshal(message[:len(message)-1], &a); err != nil || a.ID == 0 {
			continue
		}
		select {
		case b.answers <- a:
		case <-ctx.Done():
			return
		}
	}
}

// try sends a command, to a page or with "" to the browser, and reads its result.
func (b *devtools) try(page, method string, params map[string]any, into any) error {
	b.last++
	command, err := json.Marshal(struct {
		ID      int            `json:"id"`
		Method  string         `json:"method"`
		Session string         `json:"sessionId,omitempty"`
		Params  map[string]any `json:"params,omitempty"`
	}{b.last, method, page, params})
	if err != nil {
		return err
	}
	if _, err := b.in.Write(append(command, 0)); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	for late := time.After(answerMost); ; {
		select {
		case a, ok := <-b.answers:
			switch {
			case !ok:
				return fmt.Errorf("%s: the browser has gone", method)
			case a.ID != b.last: // of a command that was given up
			case a.Error != nil:
				return fmt.Errorf("%s: %s", method, a.Error.Message)
			case into != nil:
				return json.Unmarshal(a.Result, into)
			default:
				return nil
			}
		case <-late:
			return fmt.Errorf("%s: no answer within %v", method, answerMost)
		}
	}
}

func (b *devtools) do(page, method string, params map[string]any, into any) {
	b.t.Helper()
	if err := b.try(page, method, params, into); err != nil {
		b.t.Fatal(err)
	}
}

// open opens an address in a window and a profile of its own, because a browser has only a few connections for all
// pages of a profile.
func (b *devtools) open(url string) (page string) {
	b.t.Helper()
	var made struct{ BrowserContextID, TargetID, SessionID string }
	b.do("", "Target.createBrowserContext", nil, &made)
	b.do("", "Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID, "newWindow": true, "width": 1280, "height": 900}, &made)
	b.do("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	page = made.SessionID
	b.do(page, "Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	b.do(page, "Performance.enable", nil, nil)
	b.do(page, "Emulation.setScrollbarsHidden", map[string]any{"hidden": true}, nil) // pictures are as wide as the screen
	b.navigate(page, url)
	return page
}

// navigate loads an address, and returns when it has been loaded.
func (b *devtools) navigate(page, url string) {
	b.t.Helper()
	b.do(page, "Page.navigate", map[string]any{"url": url}, nil)
	b.until(page, `location.href === `+quoted(url)+` && document.readyState === "complete" && performance.timing.loadEventEnd > 0`)
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // text can be encoded
	}
	return string(b)
}

// ask evaluates an expression, and waits for its promise.
func (b *devtools) ask(page, expression string, into any) error {
	var found struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	err := b.try(page, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &found)
	switch {
	case err != nil:
		return err
	case found.ExceptionDetails != nil:
		return errors.New(found.ExceptionDetails.Exception.Description)
	case into == nil:
		return nil
	}
	return json.Unmarshal(found.Result.Value, into)
}

// until waits for a condition.
func (b *devtools) until(page, condition string) {
	b.t.Helper()
	await.True(b.t, condition, func() (holds bool) {
		// A page that is being left answers with an error.
		return b.ask(page, condition, &holds) == nil && holds
	})
}
