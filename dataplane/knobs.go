package dataplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// knobs are what an operator can set for a namespace in the estimate mode. Immutable.
type knobs struct {
	leaky   bool // the level drains by limit/duration between syncs, not by cells
	offered bool // what was refused is counted too
	below   bool // the limit must not be reached, instead of not exceeded

	syncBaseMs int64 // what the tiers' intervals are multiples of
	floor      int64 // local cost below which an idle key is not synced
	outageMs   int64 // how long a sync may be wanting before local cost is left out; 0 is one window
	pendingMax int64 // keys that may wait for a sync
	batchMax   int   // keys that one tick syncs

	overrides map[string]int64 // limits of single identifiers

	waiting *atomic.Int64 // keys that wait for a sync; the same for all settings of a namespace
}

// estimateDocument is NamespaceRow.Estimate; the package documentation has its fields.
type estimateDocument struct {
	Preset       string `json:"preset"`
	Drain        string `json:"drain"`
	Count        string `json:"count"`
	Test         string `json:"test"`
	SyncBaseMs   *int64 `json:"sync_base_ms"`
	Floor        *int64 `json:"floor"`
	PendingMax   *int64 `json:"pending_max"`
	BatchMax     *int64 `json:"batch_max"`
	ReadOutageMs *int64 `json:"max_read_outage_ms"`
	Overrides    string `json:"overrides"`
}

const (
	syncBaseMsDefault = 15_000
	floorDefault      = 10
	pendingMaxDefault = 10_000
	batchMaxDefault   = 1_000
)

// parseKnobs reads a document strictly: an unknown field, a value out of its bounds or
// text behind the end are errors. "" is all defaults.
func parseKnobs(document string) (*knobs, error) {
	var d estimateDocument
	if len(document) > EstimateBytesMax {
		return nil, fmt.Errorf("%w: the document is %d bytes long (at most %d)", ErrInvalid, len(document), EstimateBytesMax)
	}
	if document != "" {
		dec := json.NewDecoder(strings.NewReader(document))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			return nil, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // the parser's error is text for people
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: text after the document's end", ErrInvalid)
		}
	}
	return d.knobs()
}

func (d *estimateDocument) knobs() (*knobs, error) {
	var bad []error
	choose := func(field, value, no, yes string, preset bool) bool {
		switch value {
		case "":
			return preset
		case no, yes:
			return value == yes
		}
		bad = append(bad, fmt.Errorf("%w: %s is %q (%s, %s)", ErrInvalid, field, value, no, yes))
		return preset
	}
	number := func(field string, value *int64, otherwise, least, most int64) int64 {
		if value == nil {
			return otherwise
		}
		if *value < least || *value > most {
			bad = append(bad, fmt.Errorf("%w: %s is %d (%d to %d)", ErrInvalid, field, *value, least, most))
		}
		return *value
	}
	preset := choose("preset", d.Preset, "default", "posthog", false)
	k := &knobs{
		leaky:      choose("drain", d.Drain, "cells", "leaky", preset),
		offered:    choose("count", d.Count, "accepted", "offered", preset),
		below:      choose("test", d.Test, ">", ">=", preset),
		syncBaseMs: number("sync_base_ms", d.SyncBaseMs, syncBaseMsDefault, 1_000, 600_000),
		floor:      number("floor", d.Floor, floorDefault, 0, window.LimitMax),
		pendingMax: number("pending_max", d.PendingMax, pendingMaxDefault, 1, 1_000_000),
		batchMax:   int(number("batch_max", d.BatchMax, batchMaxDefault, 1, 20_000)),
		outageMs:   number("max_read_outage_ms", d.ReadOutageMs, 0, 0, (24 * time.Hour).Milliseconds()),
		waiting:    new(atomic.Int64),
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	var err error
	k.overrides, err = parseOverrides(d.Overrides)
	return k, err
}

// parseOverrides reads "key=limit,key=limit": parts between commas, the key before the
// first '=', both sides trimmed. A later part wins. What is no key and limit is left
// out, and the error names it; the rest is returned beside it.
func parseOverrides(text string) (map[string]int64, error) {
	var limits map[string]int64
	var bad []error
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		limit, err := strconv.ParseInt(value, 10, 64)
		if !found || key == "" || len(key) > window.IdentifierBytesMax || err != nil || limit < 0 || limit > window.LimitMax {
			bad = append(bad, fmt.Errorf("%w: overrides has %q (identifier=limit, limit 0 to %d)", ErrInvalid, part, int64(window.LimitMax)))
			continue
		}
		if limits == nil {
			limits = make(map[string]int64)
		}
		limits[key] = limit
	}
	return limits, joinFirst(bad, 5)
}

// setMode applies a namespace's mode and knobs. What cannot be read leaves in force what
// was, or else the defaults, and the error says so.
func (sp *space) setMode(row *NamespaceRow, last *space) error {
	if last == nil {
		last = &space{}
	}
	name := fmt.Sprintf("namespace %q/%q", row.Workspace, row.Namespace)
	mode, err := window.ParseMode(row.Mode)
	if err != nil {
		sp.estimateBy(last.estimate)
		return fmt.Errorf("%s: %w", name, err)
	}
	if mode == window.Exact {
		return nil
	}
	k, err := parseKnobs(row.Estimate)
	switch {
	case k != nil:
		if last.estimate != nil {
			k.waiting = last.estimate.waiting
		}
	case last.estimate != nil:
		k = last.estimate
	default:
		k, _ = parseKnobs("")
	}
	sp.estimateBy(k)
	if err != nil {
		return fmt.Errorf("%s: estimate: %w", name, err)
	}
	return nil
}

// estimateBy comes before the stored overrides are applied: of one identifier they win.
func (sp *space) estimateBy(k *knobs) {
	sp.estimate = k
	if k == nil {
		return
	}
	for identifier, limit := range k.overrides {
		sp.exact[identifier] = &override{rule: rule{pattern: identifier}, limit: limit}
	}
}
