package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// The modes of a LimitsTrial.
const (
	TrialShadow  = "shadow"  // decide as before, and count what the change would decide
	TrialEnforce = "enforce" // decide by the change, and count what was decided before
)

// Bounds of a LimitsTrial.
const (
	TrialBytesMax = 60_000 // of its document
	ProtectedMax  = 100
)

// LimitsTrial is a change of limits that some nodes run for a rollout. It is the document of a trial, in the place of
// a tuning. It is void, so that nodes decide as before, as soon as an item that it changes is no longer as Before says.
//
// The document is an object with the two fields "limits" and "requires". A build that does not know limits trials
// rejects it, because it requires what that build does not have; see package tuning.
type LimitsTrial struct {
	Mode   string `json:"mode"` // TrialShadow or TrialEnforce
	Change Change `json:"change"`

	// Protected are callers whom the change must not deny: identifiers or patterns as in overrides, at most ProtectedMax.
	Protected []Protected `json:"protected,omitempty"`
}

// Protected names callers of a namespace. Pattern is as in Override.
type Protected struct {
	Workspace string `json:"workspace"`
	Namespace string `json:"namespace"`
	Pattern   string `json:"pattern"`
}

// Problem returns the first field out of its bounds, or "".
func (p Protected) Problem() string {
	o := Override{Workspace: p.Workspace, Namespace: p.Namespace, Pattern: p.Pattern}
	return o.Problem()
}

const limitsField = "limits"

type trialDocument struct {
	Limits   *LimitsTrial `json:"limits"`
	Requires []string     `json:"requires"`
}

// Validate returns an error for the first field out of its bounds.
func (t *LimitsTrial) Validate() error {
	if t.Mode != TrialShadow && t.Mode != TrialEnforce {
		return fmt.Errorf("%w: mode of the trial is %.64q (%s, %s)", ErrInvalid, t.Mode, TrialShadow, TrialEnforce)
	}
	if n := len(t.Protected); n > ProtectedMax {
		return fmt.Errorf("%w: the trial has %d protected callers (at most %d)", ErrInvalid, n, ProtectedMax)
	}
	for i, p := range t.Protected {
		if problem := p.Problem(); problem != "" {
			return fmt.Errorf("%w: protected[%d]: %s", ErrInvalid, i, problem)
		}
	}
	return t.Change.Validate()
}

// Document returns the document of a trial, at most TrialBytesMax long.
func (t *LimitsTrial) Document() (string, error) {
	if err := t.Validate(); err != nil {
		return "", err
	}
	b, err := json.Marshal(trialDocument{t, []string{limitsField}})
	if err == nil && len(b) > TrialBytesMax {
		err = fmt.Errorf("%w: the change takes %d bytes (at most %d): roll it out in parts", ErrInvalid, len(b),
			TrialBytesMax)
	}
	return string(b), err
}

// IsLimitsTrial reports whether the document of a trial changes limits, and not the tuning.
func IsLimitsTrial(document []byte) bool {
	var fields map[string]json.RawMessage
	if json.Unmarshal(document, &fields) != nil {
		return false
	}
	_, is := fields[limitsField]
	return is
}

// ReadLimitsTrial reads a document of a trial strictly.
func ReadLimitsTrial(document []byte) (*LimitsTrial, error) {
	if len(document) > TrialBytesMax {
		return nil, fmt.Errorf("%w: the trial is %d bytes long (at most %d)", ErrInvalid, len(document), TrialBytesMax)
	}
	var d trialDocument
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		//nolint:errorlint // the parser's error is text for people
		return nil, fmt.Errorf("%w: the trial: %v", ErrInvalid, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: the trial: text after the document's end", ErrInvalid)
	}
	if d.Limits == nil || len(d.Requires) != 1 || d.Requires[0] != limitsField {
		return nil, fmt.Errorf("%w: the trial wants limits, and to require them alone", ErrInvalid)
	}
	return d.Limits, d.Limits.Validate()
}
