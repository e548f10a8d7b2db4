// Package controltest holds what the tests of several jobs of the control plane share.
package controltest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/tuning"
)

// Day is a moment at which tests begin.
var Day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Ann and Bob are two operators.
var (
	Ann = controlplane.By{Actor: "ann", Reason: "fewer rows"}
	Bob = controlplane.By{Actor: "bob", Reason: "looked at it"}
)

// WantInvalid reports an error that is not ErrInvalid, or does not contain words.
func WantInvalid(t *testing.T, err error, words string) {
	t.Helper()
	if !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v; want one that is ErrInvalid and contains %q", err, words)
	}
}

// Document30 is a tuning with a floor of 0.3, every field present.
var Document30 = func() []byte {
	set, err := tuning.Read([]byte(`{"floor":0.3}`))
	if err != nil {
		panic(err)
	}
	document, err := set.Document()
	if err != nil {
		panic(err)
	}
	return document
}()

// DefaultDocument returns the default tuning, every field present.
func DefaultDocument() string {
	document, err := tuning.Default().Document()
	if err != nil {
		panic(err)
	}
	return string(document)
}
