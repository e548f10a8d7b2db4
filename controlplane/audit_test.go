package controlplane

import (
	"context"
	"errors"
	"strings"
	"testing"
)

type auditLog struct {
	rows []AuditEntry
	err  error
}

func (a *auditLog) InsertAudit(_ context.Context, e AuditEntry) error {
	if a.err == nil {
		a.rows = append(a.rows, e)
	}
	return a.err
}

// "Every change needs one [who and why]."
func TestByValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		by   By
		want string
	}{
		"no actor":        {By{"", "deploy"}, "actor is empty (1 to 191 bytes)"},
		"blank actor":     {By{" \t", "deploy"}, "actor is empty (1 to 191 bytes)"},
		"long actor":      {By{strings.Repeat("a", 192), "deploy"}, "actor is 192 bytes long (1 to 191)"},
		"no reason":       {By{"ann", ""}, "reason is empty (1 to 500 bytes)"},
		"long reason":     {By{"ann", strings.Repeat("é", 251)}, "reason is 502 bytes long (1 to 500)"},
		"actor not UTF-8": {By{"an\xff", "deploy"}, "actor is not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) { wantInvalid(t, tc.by.Validate(), tc.want) })
	}
	if err := (By{strings.Repeat("a", 191), strings.Repeat("r", 500)}).Validate(); err != nil {
		t.Errorf("the longest: %v", err)
	}
}

func TestWriteAudit(t *testing.T) {
	ok := AuditEntry{By: By{"ann", "deploy"}, Action: "cleanup.pause", Subject: "cleanup", Before: "{}", After: `{"paused":true}`}
	log := &auditLog{}
	if err := WriteAudit(t.Context(), log, ok); err != nil || len(log.rows) != 1 || log.rows[0] != ok {
		t.Fatalf("%v, rows %+v", err, log.rows)
	}
	for want, change := range map[string]func(*AuditEntry){
		"reason is empty":                      func(e *AuditEntry) { e.Reason = "" },
		"action is 65 bytes long (1 to 64)":    func(e *AuditEntry) { e.Action = strings.Repeat("a", 65) },
		"subject is 0 bytes long (1 to 800)":   func(e *AuditEntry) { e.Subject = "" },
		"after is 61441 bytes long (at most 6": func(e *AuditEntry) { e.After = strings.Repeat("a", 61441) },
		"before is not valid UTF-8":            func(e *AuditEntry) { e.Before = "\xff" },
	} {
		e := ok
		change(&e)
		wantInvalid(t, WriteAudit(t.Context(), log, e), want)
	}
	log.err = errors.New("connection lost")
	if err := WriteAudit(t.Context(), log, ok); !errors.Is(err, log.err) || !strings.Contains(err.Error(), "audit cleanup.pause of cleanup by ann") {
		t.Errorf("error %v", err)
	}
}
