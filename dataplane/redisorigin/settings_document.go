package redisorigin

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weirhq/weir/dataplane/store"
)

const (
	// settingsBytesMax bounds a copy of the settings before it is packed: 100,000 resets and 10,000 overrides with
	// names of the greatest length.
	settingsBytesMax = 128 << 20
	// settingsPackedMax bounds it as it is stored.
	settingsPackedMax = 32 << 20
)

// settingsDocument is a copy of the settings as a server has it: JSON, deflated. Readers must accept documents of older
// and newer builds, so fields must only be added.
type settingsDocument struct {
	version string // a digest of the content
	bytes   string
}

// settingsJSON has names as []byte, so that any bytes survive. Values that change at any time (NodesLive, Age, for how
// long a trial is good) are stored separately.
type settingsJSON struct {
	Version    int64                  `json:"version"`
	Document   []byte                 `json:"document"` // null is nil
	Trial      *trialJSON             `json:"trial,omitempty"`
	Problem    string                 `json:"problem,omitempty"`
	Namespaces entries[namespaceJSON] `json:"namespaces"`
	Overrides  entries[overrideJSON]  `json:"overrides"`
	Resets     entries[resetJSON]     `json:"resets"`
}

type trialJSON struct {
	Number   int64  `json:"number"`
	Document []byte `json:"document"`
	Below    int64  `json:"below"`
}

// spaceJSON is how each entry begins.
type spaceJSON struct {
	Workspace []byte `json:"w"`
	Namespace []byte `json:"n"`
}

func spaceOf(workspace, namespace string) spaceJSON {
	return spaceJSON{[]byte(workspace), []byte(namespace)}
}

type namespaceJSON struct {
	spaceJSON
	Shadow    bool   `json:"shadow,omitempty"`
	Mode      string `json:"mode,omitempty"`
	Outage    string `json:"outage,omitempty"`
	NodeShare string `json:"node_share,omitempty"`
	Estimate  string `json:"estimate,omitempty"`
	Window    string `json:"window,omitempty"`
}

type overrideJSON struct {
	spaceJSON
	Pattern    []byte `json:"p"`
	Limit      int64  `json:"l"`
	DurationMs int64  `json:"d,omitempty"`
	Candidate  int64  `json:"c,omitempty"`
	Shadow     bool   `json:"shadow,omitempty"`
}

type resetJSON struct {
	spaceJSON
	Identifier  []byte `json:"i"`
	Generation  int64  `json:"g"`
	AtMs        int64  `json:"at"`
	ExpiresAtMs int64  `json:"until"`
}

// entryBytesMin is the length of the shortest entry, {"w":"","n":""}.
const entryBytesMin = 15

// entries is a list with a bounded number of entries. A longer list is refused, because entries without names would
// take many times their length in memory.
type entries[T any] []T

// UnmarshalJSON implements json.Unmarshaler.
func (e *entries[T]) UnmarshalJSON(list []byte) error {
	d := json.NewDecoder(bytes.NewReader(list))
	switch begin, err := d.Token(); {
	case err != nil || begin == nil: // null is none
		return err
	case begin != json.Delim('['):
		return fmt.Errorf("a list begins with %v", begin)
	}
	most := len(list) / entryBytesMin
	for d.More() {
		if len(*e) == most {
			return fmt.Errorf("more than %d entries in %d bytes", most, len(list))
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return err
		}
		*e = append(*e, one)
	}
	return nil
}

func plainSettings(rows store.SettingsRows) ([]byte, error) {
	j := settingsJSON{Version: rows.TuningVersion, Document: rows.TuningDocument}
	if rows.Problem != nil {
		j.Problem = rows.Problem.Error()
	}
	if t := &rows.Trial; t.Number != 0 {
		j.Trial = &trialJSON{t.Number, t.Document, t.Below}
	}
	for _, r := range rows.Namespaces {
		j.Namespaces = append(j.Namespaces, namespaceJSON{spaceOf(r.Workspace, r.Namespace), r.Shadow, r.Mode,
			r.Outage, r.NodeShare, r.Estimate, string(r.Window)})
	}
	for _, r := range rows.Overrides {
		j.Overrides = append(j.Overrides, overrideJSON{
			spaceOf(r.Workspace, r.Namespace), []byte(r.Pattern), r.Limit, r.DurationMs, r.Candidate, r.Shadow})
	}
	for _, r := range rows.Resets {
		j.Resets = append(j.Resets, resetJSON{
			spaceOf(r.Workspace, r.Namespace), []byte(r.Identifier), r.Generation, r.AtMs, r.ExpiresAtMs})
	}
	plain, err := json.Marshal(j)
	if err == nil && len(plain) > settingsBytesMax {
		err = fmt.Errorf("settings have %d bytes (at most %d)", len(plain), settingsBytesMax)
	}
	return plain, err
}

func (j *settingsJSON) rows() store.SettingsRows {
	rows := store.SettingsRows{TuningVersion: j.Version, TuningDocument: j.Document}
	if j.Problem != "" {
		rows.Problem = errors.New(j.Problem)
	}
	if t := j.Trial; t != nil {
		rows.Trial = store.TrialRow{Number: t.Number, Document: t.Document, Below: t.Below}
	}
	for _, r := range j.Namespaces {
		rows.Namespaces = append(rows.Namespaces, store.NamespaceRow{Workspace: string(r.Workspace),
			Namespace: string(r.Namespace),
			Shadow:    r.Shadow, Mode: r.Mode, Outage: r.Outage, NodeShare: r.NodeShare, Estimate: r.Estimate,
			Window: store.Window(r.Window)})
	}
	for _, r := range j.Overrides {
		rows.Overrides = append(rows.Overrides,
			store.OverrideRow{Workspace: string(r.Workspace), Namespace: string(r.Namespace),
				Pattern: string(r.Pattern), Limit: r.Limit, DurationMs: r.DurationMs, Candidate: r.Candidate, Shadow: r.Shadow})
	}
	for _, r := range j.Resets {
		rows.Resets = append(rows.Resets, store.ResetRow{Workspace: string(r.Workspace), Namespace: string(r.Namespace),
			Identifier: string(r.Identifier), Generation: r.Generation, AtMs: r.AtMs, ExpiresAtMs: r.ExpiresAtMs})
	}
	return rows
}

func versionOf(plain []byte) string {
	sum := sha256.Sum256(plain)
	return hex.EncodeToString(sum[:16])
}

func deflate(plain []byte) (string, error) {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed) // the level is valid
	_, _ = w.Write(plain)                        // a buffer takes everything
	_ = w.Close()
	if b.Len() > settingsPackedMax {
		return "", fmt.Errorf("settings have %d bytes when they are packed (at most %d)", b.Len(), settingsPackedMax)
	}
	return b.String(), nil
}

var errNoDocument = errors.New("holds no copy of the settings")

// unpack is the inverse of pack, and returns an error for a text that is no document. It does not read a document
// that is too long.
func (d settingsDocument) unpack(bytes int64) (store.SettingsRows, error) {
	if bytes > settingsPackedMax {
		return store.SettingsRows{}, fmt.Errorf("%w: it has %d bytes (at most %d)", errNoDocument, bytes, settingsPackedMax)
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(strings.NewReader(d.bytes)), settingsBytesMax+1))
	switch {
	case err != nil:
		return store.SettingsRows{}, fmt.Errorf("%w: %w", errNoDocument, err)
	case len(plain) > settingsBytesMax:
		return store.SettingsRows{}, fmt.Errorf("%w: unpacked it has more than %d bytes", errNoDocument, settingsBytesMax)
	}
	var j settingsJSON
	if err := json.Unmarshal(plain, &j); err != nil {
		return store.SettingsRows{}, fmt.Errorf("%w: %w", errNoDocument, err)
	}
	return j.rows(), nil
}
