// Package estimate has the settings that an operator can choose for a namespace in the estimate mode, and their form as
// a document. Nodes run by the document, and the control plane rejects documents that nodes would reject.
//
// A document is JSON with these fields. A field that is left out has its preset's value:
//
//	preset              "default", or "posthog": leaky, offered, >=
//	drain               "cells" (default) or "leaky"
//	count               "accepted" (default) or "offered"
//	test                ">" (default) denies requests that exceed the limit, ">=" also those that reach it
//	sync_base_ms        1,000 to 600,000, default 15,000. A lower value keeps counts closer to the truth, with more
//	                    commands
//	floor               0 or more, default 10: local cost with which an idle key is synced,
//	                    or 1 % of the limit if that is less
//	pending_max         1 to 1,000,000, default 10,000: keys that may wait for a sync. Further keys try again with
//	                    their next requests
//	batch_max           1 to 20,000, default 1,000: keys that a tick syncs, of each shard
//	max_read_outage_ms  0 (one window, the default) to a day: how long a sync may be overdue
//	                    before local cost is left out of a leaky level
//	overrides           "key=limit,key=limit": limits of identifiers without a stored override of their own
//
// For example, {"drain": "leaky", "sync_base_ms": 5000} drains levels continuously, and syncs them three times as often
// as by default.
package estimate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// ErrInvalid is wrapped by every error about a document; the message names the field and
// its bound.
var ErrInvalid = errors.New("estimate")

// DocumentBytesMax bounds a document.
const DocumentBytesMax = 4096

// Knobs are a document's settings, with the defaults of the fields that it leaves out.
type Knobs struct {
	Leaky   bool // the level drains by limit/duration between syncs, not by cells
	Offered bool // refused cost is counted too
	Below   bool // the limit must not be reached, instead of not exceeded

	SyncBaseMs   int64 // the tiers' intervals are multiples of it: 1,000 to 600,000
	Floor        int64 // local cost below which an idle key is not synced, 0 to window.LimitMax
	ReadOutageMs int64 // how long a sync may be overdue before local cost is left out, to a day; 0 is one window
	PendingMax   int64 // keys that may wait for a sync, 1 to 1,000,000
	BatchMax     int   // keys that a tick syncs, 1 to 20,000

	Overrides map[string]int64 // limits of single identifiers
}

// document is the JSON form.
type document struct {
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

	overrideErrorsMax = 5 // errors that are listed in full
)

// Parse reads a document strictly: an unknown field, a value out of its bounds or text behind the end are errors that
// wrap ErrInvalid, and no Knobs. "" is all defaults. If only parts of the overrides are invalid, the Knobs without them
// come with the error.
func Parse(text string) (*Knobs, error) {
	var d document
	if len(text) > DocumentBytesMax {
		return nil, fmt.Errorf("%w: the document is %d bytes long (at most %d)", ErrInvalid, len(text), DocumentBytesMax)
	}
	if text != "" {
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&d); err != nil {
			return nil, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // the parser's error is text for people
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: text after the document's end", ErrInvalid)
		}
		if err := checkNames(text); err != nil {
			return nil, err
		}
	}
	return d.knobs()
}

// checkNames rejects fields that the decoder accepts under another spelling, such as "Floor" for floor, and fields that
// appear twice, of which the decoder takes the last. The document was decoded before.
func checkNames(text string) error {
	dec := json.NewDecoder(strings.NewReader(text))
	_, _ = dec.Token() // the brace; of null there is nothing more
	seen := make(map[string]bool)
	for dec.More() {
		token, _ := dec.Token()
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // the parser's error is text for people
		}
		name, _ := token.(string)
		if !fields[name] {
			return fmt.Errorf("%w: there is no field %.64q", ErrInvalid, name)
		}
		if seen[name] {
			return fmt.Errorf("%w: %s appears twice", ErrInvalid, name)
		}
		seen[name] = true
	}
	return nil
}

// fields are the names of a document's fields.
var fields = func() map[string]bool {
	names := make(map[string]bool)
	t := reflect.TypeFor[document]()
	for i := range t.NumField() {
		names[t.Field(i).Tag.Get("json")] = true
	}
	return names
}()

func (d *document) knobs() (*Knobs, error) {
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
	k := &Knobs{
		Leaky:        choose("drain", d.Drain, "cells", "leaky", preset),
		Offered:      choose("count", d.Count, "accepted", "offered", preset),
		Below:        choose("test", d.Test, ">", ">=", preset),
		SyncBaseMs:   number("sync_base_ms", d.SyncBaseMs, syncBaseMsDefault, 1_000, 600_000),
		Floor:        number("floor", d.Floor, floorDefault, 0, window.LimitMax),
		PendingMax:   number("pending_max", d.PendingMax, pendingMaxDefault, 1, 1_000_000),
		BatchMax:     int(number("batch_max", d.BatchMax, batchMaxDefault, 1, 20_000)),
		ReadOutageMs: number("max_read_outage_ms", d.ReadOutageMs, 0, 0, (24 * time.Hour).Milliseconds()),
	}
	if len(bad) > 0 {
		return nil, errors.Join(bad...)
	}
	var err error
	k.Overrides, err = ParseOverrides(d.Overrides)
	return k, err
}

// ParseOverrides reads "key=limit,key=limit": parts between commas, the key before the first '=', both sides trimmed.
// If a key appears twice, the later part applies. A part that is no key and limit is left out. The error names these
// parts, and the limits of all other parts are returned with it.
func ParseOverrides(text string) (map[string]int64, error) {
	var limits map[string]int64
	var bad []error
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, found := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		limit, err := strconv.ParseInt(value, 10, 64)
		if !found || key == "" || len(key) > window.IdentifierBytesMax || err != nil ||
			limit < 0 || limit > window.LimitMax ||
			strconv.FormatInt(limit, 10) != value { // each number has a single spelling
			bad = append(bad, fmt.Errorf("%w: overrides has %q (identifier=limit, limit 0 to %d)", ErrInvalid, part,
				int64(window.LimitMax)))
			continue
		}
		if limits == nil {
			limits = make(map[string]int64)
		}
		limits[key] = limit
	}
	if len(bad) > overrideErrorsMax {
		bad = append(bad[:overrideErrorsMax:overrideErrorsMax], fmt.Errorf("and %d more", len(bad)-overrideErrorsMax))
	}
	return limits, errors.Join(bad...)
}
