package heartbeat

import (
	"encoding/json"
	"fmt"

	"github.com/weirhq/weir/shared/window"
)

const (
	// TopKeysMax is how many keys of each kind a node reports.
	TopKeysMax = 20
	// TopBytesMax bounds the document they are reported in.
	TopBytesMax = 16 << 10
)

// Top are a node's hottest and most denied keys, largest first. Readers must accept
// those of older and newer builds, so fields are only ever added.
type Top struct {
	AtMs          int64    `json:"at_ms"`           // when it was made, Unix ms by the node's clock
	DeniedSinceMs int64    `json:"denied_since_ms"` // since when denials were counted; 0: never were
	Hot           []TopKey `json:"hot"`             // by cost in their windows
	Denied        []TopKey `json:"denied"`          // by requests denied, or let pass by shadow mode alone
}

// TopKey is one of them. Names are bytes, and in base64 on their way.
type TopKey struct {
	Workspace  []byte `json:"w"`
	Namespace  []byte `json:"n"`
	Identifier []byte `json:"i"`
	DurationMs int64  `json:"d"`
	Limit      int64  `json:"l"` // -1: unknown
	Count      int64  `json:"c"` // of hot keys cost, of all regions; of denied ones requests to this node
	Regional   int64  `json:"r"` // of hot keys: the part of Count that is the region's own
	More       int64  `json:"m"` // of denied keys: how many more it may be
}

// Document writes t, and leaves out the last keys until it is at most TopBytesMax long.
func (t Top) Document() (string, error) {
	t.Hot, t.Denied = t.Hot[:min(len(t.Hot), TopKeysMax)], t.Denied[:min(len(t.Denied), TopKeysMax)]
	for {
		b, err := json.Marshal(t)
		if err != nil {
			return "", fmt.Errorf("write top keys: %w", err)
		}
		if len(b) <= TopBytesMax {
			return string(b), nil
		}
		if len(t.Hot) > len(t.Denied) {
			t.Hot = t.Hot[:len(t.Hot)-1]
		} else {
			t.Denied = t.Denied[:len(t.Denied)-1]
		}
	}
}

// ReadTop reads a document of any build, and refuses what no node can have meant.
func ReadTop(document []byte) (t Top, err error) {
	if len(document) > TopBytesMax {
		return Top{}, fmt.Errorf("top keys: %d bytes (at most %d)", len(document), TopBytesMax)
	}
	if err := json.Unmarshal(document, &t); err != nil {
		return Top{}, fmt.Errorf("top keys: %w", err)
	}
	for kind, keys := range map[string][]TopKey{"hot": t.Hot, "denied": t.Denied} {
		for i := range keys {
			if err := keys[i].validate(); err != nil {
				return Top{}, fmt.Errorf("top keys: %s[%d]: %w", kind, i, err)
			}
		}
	}
	return t, nil
}

const countMax = 1<<62 - 1

func (k *TopKey) validate() error {
	for _, n := range []struct {
		name     string
		bytes    []byte
		bytesMax int
	}{
		{"workspace", k.Workspace, window.WorkspaceBytesMax}, {"namespace", k.Namespace, window.NamespaceBytesMax},
		{"identifier", k.Identifier, window.IdentifierBytesMax},
	} {
		if len(n.bytes) < 1 || len(n.bytes) > n.bytesMax {
			return fmt.Errorf("%s is %d bytes long (1 to %d)", n.name, len(n.bytes), n.bytesMax)
		}
	}
	for _, n := range []struct {
		name         string
		value, least int64
	}{{"duration", k.DurationMs, 1}, {"limit", k.Limit, -1}, {"count", k.Count, 0}, {"regional", k.Regional, 0},
		{"more", k.More, 0}} {
		if n.value < n.least || n.value > countMax {
			return fmt.Errorf("%s is %d (%d to %d)", n.name, n.value, n.least, int64(countMax))
		}
	}
	return nil
}
