package controlplane

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var ann = By{Actor: "ann", Reason: "fewer rows"}

var day = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func wantInvalid(t *testing.T, err error, words string) {
	t.Helper()
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v; want one that is ErrInvalid and contains %q", err, words)
	}
}
