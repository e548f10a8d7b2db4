package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/restate/orderkey"
	"github.com/weirhq/weir/shared/await"
)

// post sends a request to Restate's ingress as a web page of any origin can.
func (c *cluster) post(path string, body any) (status int, answer string) {
	c.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		c.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.restate.IngressURL()+path, bytes.NewReader(text))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", "http://evil.example")
	res, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return res.StatusCode, string(got)
}

// registered is a handler as Restate lists it.
type registered struct {
	Service, Type, Name string
	Journal, Answers    string // how long they are kept
}

func (h registered) path() string {
	if h.Type == "Service" {
		return "/" + h.Service + "/" + h.Name
	}
	return "/" + h.Service + "/n/" + h.Name
}

// handlers returns the handlers that Restate has discovered, so it includes new handlers.
func (c *cluster) handlers() (all []registered) {
	c.t.Helper()
	var answer struct {
		Services []struct {
			Name     string
			Type     string `json:"ty"`
			Handlers []struct {
				Name    string
				Journal *string `json:"journal_retention"`
				Answers *string `json:"idempotency_retention"`
			}
			Journal *string `json:"journal_retention"`
			Answers string  `json:"idempotency_retention"`
		}
	}
	c.admin(http.MethodGet, "/services", nil, &answer)
	for _, s := range answer.Services {
		for _, h := range s.Handlers {
			r := registered{Service: s.Name, Type: s.Type, Name: h.Name, Answers: s.Answers}
			for _, journal := range []*string{s.Journal, h.Journal} {
				if journal != nil {
					r.Journal = *journal
				}
			}
			if h.Answers != nil {
				r.Answers = *h.Answers
			}
			all = append(all, r)
		}
	}
	return all
}

// touched returns the invocations of all services but OrdersService, and the states of all objects.
func (c *cluster) touched() (targets []string) {
	c.t.Helper()
	for query, name := range map[string]string{
		"SELECT target AS name FROM sys_invocation WHERE target_service_name <> '" + OrdersService + "'": "invocation of ",
		"SELECT service_name AS name FROM state":                                                         "state of ",
	} {
		var answer struct{ Rows []struct{ Name string } }
		c.admin(http.MethodPost, "/query", map[string]string{"query": query}, &answer)
		for _, row := range answer.Rows {
			targets = append(targets, name+row.Name)
		}
	}
	return targets
}

// Restate's ingress has no authentication and admits web pages of any origin. No request without weir-control's
// signature calls any of our handlers. The list of handlers is Restate's own.
func TestNoHandlerIsCalledWithoutTheSignatureOfWeirControl(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	refused := func(what, path string, body any, want int, says string) {
		t.Helper()
		if status, answer := c.post(path, body); status != want || !strings.Contains(answer, says) {
			t.Errorf("%s at %s: %d %s; want %d %q", what, path, status, answer, want, says)
		}
	}
	input := `{"actor":"ann","reason":"forged"}`
	stranger := orderkey.Random()
	reached := map[string]bool{}
	for _, h := range c.handlers() {
		if h.Service == OrdersService {
			continue
		}
		reached[h.Service+"/"+h.Name] = true
		for _, path := range []string{h.path(), h.path() + "/send"} {
			refused("a direct call", path, json.RawMessage(input), http.StatusBadRequest, "not public")
		}
		unsigned := orderkey.Order{ID: "1", Service: h.Service, Key: "n", Handler: h.Name, Input: input}
		signed := testKeys.Sign(unsigned, time.Now())
		altered := signed
		altered.Input = strings.Replace(input, "ann", "bob", 1)
		by := operations[h.Service+"/"+h.Name]
		for _, door := range []string{ordersChange, ordersRead} {
			path := "/" + OrdersService + "/" + door
			refused("unsigned", path, unsigned, http.StatusForbidden, "order refused: it is not signed")
			refused("signed by a stranger", path, stranger.Sign(unsigned, time.Now()), http.StatusForbidden, "it is signed with key")
			refused("under another name", path, altered, http.StatusForbidden, "the signature does not match")
			refused("an hour old", path, testKeys.Sign(unsigned, time.Now().Add(-time.Hour)), http.StatusForbidden, "repeat it")
			if door != by { // this includes internal handlers, which no order can call
				refused("at the wrong door", path, signed, http.StatusForbidden, "passes on no call of "+h.Service+"/"+h.Name)
			}
		}
	}
	if touched := c.touched(); len(touched) > 0 || n.count() > 0 {
		t.Errorf("refused orders have left %q, and %d runs", touched, n.count())
	}
	for operation := range operations {
		if !reached[operation] {
			t.Errorf("operations has %s, which is not a handler", operation)
		}
	}
	if len(reached) < 20 {
		t.Errorf("%d handlers: is the list of services complete?", len(reached))
	}
}

// A signed order can be copied from the wire between weir-control and Restate. Sent again, it gets the earlier answer.
func TestAnOrderSentAgainHasNoSecondEffect(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	order := testKeys.Sign(orderkey.Order{Service: CronService, Key: "n", Handler: "TriggerNow",
		Input: `{"actor":"ann","reason":"by hand"}`}, time.Now())
	var first string
	for i := range 3 {
		status, answer := c.post("/"+OrdersService+"/"+ordersChange, order)
		if status != http.StatusOK || i > 0 && answer != first {
			t.Errorf("time %d: %d %s; the first was %s", i, status, answer, first)
		}
		first = answer
	}
	if n.count() != 1 {
		t.Errorf("one order, three times: %d runs", n.count())
	}
}

// A weir-control without the signer's keys returns an error with advice, and changes nothing.
func TestAnotherKeyIsAClearError(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	other := NewClient(c.http, orderkey.Random(), c.restate.IngressURL())
	for name, call := range map[string]func() error{
		"a change": func() error { _, err := other.Pause(t.Context(), "n", operator); return err },
		"a look":   func() error { _, err := other.Status(t.Context(), "n"); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "give every weir-control the same order-key-file") ||
			!strings.Contains(err.Error(), controlplane.ErrConflict.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := c.status("n"); s.Pause != nil {
		t.Errorf("%+v", s)
	}
}

// Restate keeps nothing of reads, which come every few seconds, and everything else for at most a day.
func TestEverythingThatRestateKeepsHasAnEnd(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	const none, hour = "0s", "1h"
	for _, h := range c.handlers() {
		reads := operations[h.Service+"/"+h.Name] == ordersRead || h.Service == OrdersService
		switch {
		case reads && (h.Journal != none || h.Answers != none):
			t.Errorf("%s/%s: its journal is kept for %s, its answers for %s; want %s", h.Service, h.Name, h.Journal, h.Answers, none)
		case !reads && h.Answers != hour:
			t.Errorf("%s/%s: its answers are kept for %s, want %s", h.Service, h.Name, h.Answers, hour)
		case h.Journal == "":
			t.Errorf("%s/%s does not say how long its journal is kept", h.Service, h.Name)
		}
	}

	for range 5 {
		if _, err := c.client.Status(t.Context(), "n"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.client.TriggerNow(t.Context(), "n", operator); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the run by hand is all that is kept", func() error {
		var answer struct{ Rows []struct{ Target string } }
		c.admin(http.MethodPost, "/query", map[string]string{"query": "SELECT target FROM sys_invocation WHERE " +
			"target_service_name <> '" + AuditService + "'"}, &answer)
		if len(answer.Rows) != 1 || answer.Rows[0].Target != CronService+"/n/TriggerNow" {
			return fmt.Errorf("%+v", answer.Rows)
		}
		return nil
	})
}

// lines are the warnings that were logged.
type lines struct {
	slog.Handler
	mu       sync.Mutex
	warnings []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		l.warnings = append(l.warnings, r.Message)
		r.Attrs(func(a slog.Attr) bool {
			l.warnings = append(l.warnings, a.String())
			return true
		})
	}
	return nil
}

func (l *lines) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warnings = nil
}

// WithAttrs and WithGroup return l itself, because attributes do not matter.
func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *lines) WithGroup(string) slog.Handler      { return l }

// Without a problem nothing is logged, although the keeper's rounds read a retirement that does not exist.
func TestRoundsWithoutARetirementLogNothing(t *testing.T) {
	t.Parallel()
	var n counter
	log := &lines{Handler: slog.DiscardHandler}
	c := newCluster(t, Options{Log: slog.New(log)}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	log.forget() // drops the warning that requests are not signed by Restate
	k := c.keeper(map[string]time.Duration{"n": time.Hour})
	k.Retiring = []string{retire.Blocklist}
	for range 3 {
		if err := k.Once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	log.mu.Lock()
	if len(log.warnings) != 0 {
		t.Errorf("warnings: %q", log.warnings)
	}
	log.mu.Unlock()
	if _, err := (RetirementClient{c.client}).Status(t.Context(), retire.Blocklist); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
