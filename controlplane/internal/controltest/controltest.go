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

// Document returns the default tuning with changes, such as "floor=0.3", as a document with every field.
func Document(changes ...string) string {
	set, err := tuning.Edit(tuning.Default(), changes)
	if err != nil {
		panic(err)
	}
	document, err := set.Document()
	if err != nil {
		panic(err)
	}
	return string(document)
}
