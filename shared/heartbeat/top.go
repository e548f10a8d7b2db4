package heartbeat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirhq/weir/shared/window"
)

const (
	// TopKeysMax is how many keys of each kind a node reports.
	TopKeysMax = 20
	// TopBytesMax bounds the document they are reported in.
	TopBytesMax = 16 << 10
)

// Top lists a node's hottest and most denied keys, largest first. Readers must accept documents of older and newer
// builds, so fields are only ever added.
type Top struct {
	AtMs          int64    `json:"at_ms"`           // when it was made, Unix ms by the node's clock
	DeniedSinceMs int64    `json:"denied_since_ms"` // since when denials were counted; 0: never were
	Hot           []TopKey `json:"hot"`             // by cost in their windows
	Denied        []TopKey `json:"denied"`          // by requests denied, or let pass by shadow mode alone

	Refused []TopKey `json:"refused,omitempty"` // by leases refused; they have no duration
	Held    []Held   `json:"held,omitempty"`    // leases and reservations held longest, as far as the node has them

	// Unread is how many of these entries ReadTop has left out, because they are malformed.
	Unread int `json:"-"`
}

// TopKey is a key in Top. Names are bytes, encoded in base64.
type TopKey struct {
	Workspace  []byte `json:"w"`
	Namespace  []byte `json:"n"`
	Identifier []byte `json:"i"`
	DurationMs int64  `json:"d"`
	Limit      int64  `json:"l"` // -1: unknown
	Count      int64  `json:"c"` // hot keys: cost, of all regions; denied keys: requests to this node
	Regional   int64  `json:"r"` // of hot keys: the part of Count that is the region's own
	More       int64  `json:"m"` // of denied keys: how many more it may be
}

// The kinds of Held.
const (
	HeldLease       = "lease"
	HeldReservation = "reservation"
)

// Held is a lease of a concurrency limit, or the part of a reservation that belongs to a key.
type Held struct {
	Kind       string `json:"k"`
	Workspace  []byte `json:"w"`
	Namespace  []byte `json:"n"`
	Identifier []byte `json:"i"`
	Holder     []byte `json:"h,omitempty"` // a label, as the holder gave it
	SinceMs    int64  `json:"s"`           // Unix ms by the node's clock
	EndsMs     int64  `json:"e,omitempty"` // Unix ms; 0: not before it is released
	Amount     int64  `json:"a"`           // slots, or cost
	Mark       uint64 `json:"x,omitempty"` // equal in every node's report of it, and unique; 0: no other node has it
}

// Document writes t. It leaves out the last entries of the longest lists until it is at most TopBytesMax long.
func (t Top) Document() (string, error) {
	keys := []*[]TopKey{&t.Hot, &t.Denied, &t.Refused}
	for _, k := range keys {
		*k = (*k)[:min(len(*k), TopKeysMax)]
	}
	t.Held = t.Held[:min(len(t.Held), TopKeysMax)]
	for {
		b, err := json.Marshal(t)
		if err != nil {
			return "", fmt.Errorf("write top keys: %w", err)
		}
		if len(b) <= TopBytesMax {
			return string(b), nil
		}
		longest := slices.MaxFunc(keys, func(a, b *[]TopKey) int { return cmp.Compare(len(*a), len(*b)) })
		if len(t.Held) > len(*longest) {
			t.Held = t.Held[:len(t.Held)-1]
		} else {
			*longest = (*longest)[:len(*longest)-1]
		}
	}
}

// ReadTop reads a document of any build. It leaves out malformed entries and counts them in Unread, so that a bad key
// does not affect the others. If nothing can be read, it returns an error.
func ReadTop(document []byte) (Top, error) {
	if len(document) > TopBytesMax {
		return Top{}, fmt.Errorf("top keys: %d bytes (at most %d)", len(document), TopBytesMax)
	}
	var d struct {
		AtMs          int64             `json:"at_ms"`
		DeniedSinceMs int64             `json:"denied_since_ms"`
		Hot           []json.RawMessage `json:"hot"`
		Denied        []json.RawMessage `json:"denied"`
		Refused       []json.RawMessage `json:"refused"`
		Held          []json.RawMessage `json:"held"`
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return Top{}, fmt.Errorf("top keys: %w", err)
	}
	t := Top{AtMs: d.AtMs, DeniedSinceMs: d.DeniedSinceMs}
	timed, untimed := func(k *TopKey) error { return k.validate(1) }, func(k *TopKey) error { return k.validate(0) }
	t.Hot = readEach(&t, d.Hot, timed)
	t.Denied = readEach(&t, d.Denied, timed)
	t.Refused = readEach(&t, d.Refused, untimed)
	t.Held = readEach(&t, d.Held, (*Held).validate)
	return t, nil
}

// readEach reads the elements that are valid, and counts the others in t.
func readEach[E any](t *Top, elements []json.RawMessage, validate func(*E) error) (read []E) {
	for _, text := range elements {
		var e E
		if json.Unmarshal(text, &e) != nil || validate(&e) != nil {
			t.Unread++
			continue
		}
		read = append(read, e)
	}
	return read
}

const countMax = 1<<62 - 1

// holderBytesMax is how long a holder's label may be.
const holderBytesMax = 64

func (h *Held) validate() error {
	if h.Kind == "" || len(h.Holder) > holderBytesMax {
		return fmt.Errorf("kind is %q (not empty), holder is %d bytes long (at most %d)", h.Kind, len(h.Holder),
			holderBytesMax)
	}
	if err := validateNames(h.Workspace, h.Namespace, h.Identifier); err != nil {
		return err
	}
	return validateNumbers([]number{{"since", h.SinceMs, 0}, {"ends", h.EndsMs, 0}, {"amount", h.Amount, 0}})
}

func (k *TopKey) validate(durationLeast int64) error {
	if err := validateNames(k.Workspace, k.Namespace, k.Identifier); err != nil {
		return err
	}
	return validateNumbers([]number{{"duration", k.DurationMs, durationLeast}, {"limit", k.Limit, -1},
		{"count", k.Count, 0}, {"regional", k.Regional, 0}, {"more", k.More, 0}})
}

func validateNames(workspace, namespace, identifier []byte) error {
	for _, n := range []struct {
		name     string
		bytes    []byte
		bytesMax int
	}{
		{"workspace", workspace, window.WorkspaceBytesMax}, {"namespace", namespace, window.NamespaceBytesMax},
		{"identifier", identifier, window.IdentifierBytesMax},
	} {
		if len(n.bytes) < 1 || len(n.bytes) > n.bytesMax {
			return fmt.Errorf("%s is %d bytes long (1 to %d)", n.name, len(n.bytes), n.bytesMax)
		}
	}
	return nil
}

type number struct {
	name         string
	value, least int64
}

func validateNumbers(numbers []number) error {
	for _, n := range numbers {
		if n.value < n.least || n.value > countMax {
			return fmt.Errorf("%s is %d (%d to %d)", n.name, n.value, n.least, int64(countMax))
		}
	}
	return nil
}
