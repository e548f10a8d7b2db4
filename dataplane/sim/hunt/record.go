package hunt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// record lists the events of a history, a line each.
type record struct {
	mu         sync.Mutex
	began      time.Time
	lines      []string
	violations []Violation
}

// Violation is a broken invariant.
type Violation struct {
	Invariant string `json:"invariant"`
	What      string `json:"what"`
}

// violationsMax is how many violations are kept. The first are the most useful.
const violationsMax = 20

// begin sets the start of the history's clock. Earlier notes are at 0.
func (r *record) begin(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = at
}

func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(format, args...)
}

func (r *record) noteLocked(format string, args ...any) {
	at := 0.0
	if !r.began.IsZero() {
		at = time.Since(r.began).Seconds()
	}
	r.lines = append(r.lines, fmt.Sprintf("%9.3fs  ", at)+fmt.Sprintf(format, args...))
}

func (r *record) violate(invariant, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := fmt.Sprintf(format, args...)
	r.noteLocked("BROKEN %s: %s", invariant, what)
	if len(r.violations) < violationsMax {
		r.violations = append(r.violations, Violation{invariant, what})
	}
}

// wait begins a decision. over checks how long the decision has waited.
func (r *record) wait(l *life) (over func()) {
	began := time.Now()
	return func() {
		if waited := time.Since(began); waited > readTimeout {
			r.violate("wait", "%v has waited for %v before it decided, at most %v is allowed", l, waited, readTimeout)
		}
	}
}

// add records a check's findings, and the invariants that it found broken.
func (r *record) add(c *check) {
	for _, line := range c.lines {
		r.note("%s", line)
	}
	for _, v := range c.broken {
		r.violate(v.Invariant, "%s", v.What)
	}
}

func (r *record) hash() string {
	sum := sha256.Sum256([]byte(strings.Join(r.lines, "\n")))
	return hex.EncodeToString(sum[:8])
}
