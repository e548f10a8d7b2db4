package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// estimateKnobs is the document that nodes read as a namespace's knobs of the estimate
// mode, with the bounds they hold it to. What is left out is the preset's.
type estimateKnobs struct {
	Preset       *string `json:"preset"`             // default, posthog
	Drain        *string `json:"drain"`              // cells, leaky
	Count        *string `json:"count"`              // accepted, offered
	Test         *string `json:"test"`               // >, >=
	SyncBaseMs   *int64  `json:"sync_base_ms"`       // 1,000 to 600,000
	Floor        *int64  `json:"floor"`              // 0 to window.LimitMax
	PendingMax   *int64  `json:"pending_max"`        // 1 to 1,000,000
	BatchMax     *int64  `json:"batch_max"`          // 1 to 20,000
	ReadOutageMs *int64  `json:"max_read_outage_ms"` // 0 to a day
	Overrides    string  `json:"overrides"`          // identifier=limit,…
}

// validateEstimate refuses what a node would not run: an operator hears of it at once,
// and not from a heartbeat.
func validateEstimate(document string) error {
	if len(document) > EstimateBytesMax {
		return fmt.Errorf("%w: estimate is %d bytes long (at most %d)", ErrInvalid, len(document), EstimateBytesMax)
	}
	if document == "" {
		return nil
	}
	var k estimateKnobs
	dec := json.NewDecoder(strings.NewReader(document))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&k); err != nil {
		return fmt.Errorf("%w: estimate: %w", ErrInvalid, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: estimate: text after the document's end", ErrInvalid)
	}
	return k.validate()
}

func (k estimateKnobs) validate() error {
	for _, c := range []struct {
		field   string
		value   *string
		choices []string
	}{
		{"preset", k.Preset, []string{"default", "posthog"}},
		{"drain", k.Drain, []string{"cells", "leaky"}},
		{"count", k.Count, []string{"accepted", "offered"}},
		{"test", k.Test, []string{">", ">="}},
	} {
		if c.value != nil && *c.value != "" && !slices.Contains(c.choices, *c.value) {
			return fmt.Errorf("%w: estimate: %s is %q (%s)", ErrInvalid, c.field, *c.value, strings.Join(c.choices, ", "))
		}
	}
	for _, n := range []struct {
		field       string
		value       *int64
		least, most int64
	}{
		{"sync_base_ms", k.SyncBaseMs, 1_000, 600_000},
		{"floor", k.Floor, 0, window.LimitMax},
		{"pending_max", k.PendingMax, 1, 1_000_000},
		{"batch_max", k.BatchMax, 1, 20_000},
		{"max_read_outage_ms", k.ReadOutageMs, 0, (24 * time.Hour).Milliseconds()},
	} {
		if n.value != nil && (*n.value < n.least || *n.value > n.most) {
			return fmt.Errorf("%w: estimate: %s is %d (%d to %d)", ErrInvalid, n.field, *n.value, n.least, n.most)
		}
	}
	for part := range strings.SplitSeq(k.Overrides, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		limit, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if !found || key == "" || len(key) > window.IdentifierBytesMax || err != nil || limit < 0 || limit > window.LimitMax {
			return fmt.Errorf("%w: estimate: overrides has %q (identifier=limit, limit 0 to %d)", ErrInvalid, part, int64(window.LimitMax))
		}
	}
	return nil
}
