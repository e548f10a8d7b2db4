package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/auditchain"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/servers"
)

var auditEntry = audit.Entry{
	By: controlplane.By{Actor: "ann", Reason: "because"}, Action: "a.b", Subject: "s\xff", Before: "{}", After: "[1]",
}

// insertEntries adds n entries to the log.
func insertEntries(t *testing.T, s *Store, n int) {
	t.Helper()
	for range n {
		if err := s.InsertAudit(t.Context(), auditEntry); err != nil {
			t.Fatal(err)
		}
	}
}

// verifyLog verifies the whole log in pages of two.
func verifyLog(t *testing.T, s *Store) (*auditchain.Verifier, error) {
	t.Helper()
	v := new(auditchain.Verifier)
	for after := int64(0); ; {
		page, err := audit.Export(t.Context(), s, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		v.Begins(page.First)
		for _, l := range page.Links {
			if err := v.Next(&l.Entry, l.Link); err != nil {
				return v, err
			}
			after = int64(l.ID)
		}
		if !page.More {
			return v, v.Finish(page.End)
		}
	}
}

func wantWhole(t *testing.T, s *Store, linked, unlinked int64) {
	t.Helper()
	v, err := verifyLog(t, s)
	if err != nil || v.Linked() != linked || v.Unlinked() != unlinked {
		t.Errorf("%v; %d linked, %d without a link; want %d and %d", err, v.Linked(), v.Unlinked(), linked, unlinked)
	}
}

// The chain begins with the first entry after the migration, and every audited change extends it.
func TestAuditChainBegins(t *testing.T) { servers.EachSQL(t, testAuditChainBegins) }

func testAuditChainBegins(t *testing.T) {
	s, db := migrated(t)
	wantWhole(t, s, 0, 0)
	for range 3 {
		exec(t, db, `INSERT INTO ratelimit_audit (at, actor, action, subject, reason, before_state, after_state)
			VALUES (1, 'old', 'a.b', 's', 'r', '', '')`)
	}
	wantWhole(t, s, 0, 3)
	insertEntries(t, s, 2)
	once := auditEntry
	once.ID = "one"
	for range 2 {
		if err := s.InsertAudit(t.Context(), once); err != nil {
			t.Fatal(err)
		}
	}
	o := limits.Override{Workspace: "acme", Namespace: "api", Pattern: "k", Limit: 5, DurationMs: 60000}
	if err := limits.NewSettings(s).SetOverride(t.Context(), o, once.By); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, s, 4, 3)
}

// The verifier finds every change of a column of either table, and every row that was deleted, inserted or moved, and
// names the entry.
func TestAuditChainFindsAlterations(t *testing.T) { servers.EachSQL(t, testAuditChainFindsAlterations) }

func testAuditChainFindsAlterations(t *testing.T) {
	s, db := migrated(t)
	insertEntries(t, s, 5)
	exec(t, db, `CREATE TABLE audit_before AS SELECT * FROM ratelimit_audit`)
	exec(t, db, `CREATE TABLE chain_before AS SELECT * FROM ratelimit_audit_chain`)
	third := int64(count(t, db, `SELECT id FROM ratelimit_audit ORDER BY id LIMIT 2, 1`))
	last := int64(count(t, db, `SELECT MAX(id) FROM ratelimit_audit`))
	const entry, link = `UPDATE ratelimit_audit SET %s WHERE id = %d`, `UPDATE ratelimit_audit_chain SET %s WHERE entry_id = %d`
	for name, tc := range map[string]struct {
		statements string
		names      int64
	}{
		"at":                {fmt.Sprintf(entry, "at = at + 1", third), third},
		"actor":             {fmt.Sprintf(entry, "actor = 'eve'", third), third},
		"action":            {fmt.Sprintf(entry, "action = 'a.c'", third), third},
		"subject":           {fmt.Sprintf(entry, "subject = 't'", third), third},
		"reason":            {fmt.Sprintf(entry, "reason = 'other'", third), third},
		"before":            {fmt.Sprintf(entry, "before_state = ''", third), third},
		"after":             {fmt.Sprintf(entry, "after_state = '[2]'", third), third},
		"write id":          {fmt.Sprintf(entry, "write_id = 'w'", third), third},
		"id":                {fmt.Sprintf(entry, "id = 1000", third), third},
		"link's entry":      {fmt.Sprintf(link, "entry_id = 1000", third), third},
		"link's follows":    {fmt.Sprintf(link, "follows = follows - 1", third), third},
		"link's previous":   {fmt.Sprintf(link, "previous_hash = 'x'", third), third},
		"link's hash":       {fmt.Sprintf(link, "hash = 'x'", third), third},
		"deleted":           {fmt.Sprintf(`DELETE FROM ratelimit_audit WHERE id = %d`, third), third},
		"link deleted":      {fmt.Sprintf(`DELETE FROM ratelimit_audit_chain WHERE entry_id = %d`, third), third},
		"both deleted":      {fmt.Sprintf(`DELETE a, c FROM ratelimit_audit a JOIN ratelimit_audit_chain c ON c.entry_id = a.id WHERE id = %d`, third), third},
		"newest deleted":    {fmt.Sprintf(`DELETE FROM ratelimit_audit WHERE id = %d`, last), last},
		"oldest deleted":    {fmt.Sprintf(`DELETE FROM ratelimit_audit WHERE id = %d`, third-2), third - 2},
		"open end":          {fmt.Sprintf(link, "previous_hash = 'x'", 0), last},
		"open end deleted":  {`DELETE FROM ratelimit_audit_chain WHERE entry_id = 0`, last},
		"inserted":          {fmt.Sprintf(`INSERT INTO ratelimit_audit SELECT %d, at, 'eve', action, subject, reason, before_state, after_state, write_id FROM audit_before WHERE id = %d`, last+1, last), last + 1},
		"oldest links gone": {fmt.Sprintf(`DELETE FROM ratelimit_audit_chain WHERE entry_id BETWEEN 1 AND %d`, third), third},
		"swapped":           {fmt.Sprintf(`UPDATE ratelimit_audit a JOIN audit_before b ON b.id = %d + %d - a.id SET a.at = b.at + a.id - %d, a.actor = CONCAT(b.actor, a.id) WHERE a.id IN (%d, %d)`, third, third+1, third, third, third+1), third},
	} {
		exec(t, db, tc.statements)
		var b *auditchain.Broken
		if _, err := verifyLog(t, s); !errors.As(err, &b) || int64(b.ID) != tc.names {
			t.Errorf("%s: %v; want entry %d", name, err, tc.names)
		}
		for _, table := range [][2]string{{"ratelimit_audit", "audit_before"}, {"ratelimit_audit_chain", "chain_before"}} {
			exec(t, db, "DELETE FROM "+table[0])
			exec(t, db, "INSERT INTO "+table[0]+" SELECT * FROM "+table[1])
		}
	}
	wantWhole(t, s, 5, 0)
}

// Twenty concurrent writers, of entries alone and of changes with their entries, make a single chain.
func TestAuditChainOfManyWriters(t *testing.T) { servers.EachSQL(t, testAuditChainOfManyWriters) }

func testAuditChainOfManyWriters(t *testing.T) {
	s, _ := migrated(t)
	const writers, each = 20, 5
	settings := limits.NewSettings(s)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				e := auditEntry
				e.ID = fmt.Sprintf("%d", (w*each+i)/2) // each entry is tried twice
				err := s.InsertAudit(t.Context(), e)
				if w%2 == 0 {
					shadow := w%4 == 0
					change := limits.NamespaceChange{Shadow: &shadow}
					_, more := settings.SetNamespace(t.Context(), "acme", fmt.Sprintf("n%d", i), change, e.By)
					err = errors.Join(err, more)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	v, err := verifyLog(t, s)
	if err != nil || v.Linked() < writers*each/2+each {
		t.Errorf("%v, %d linked", err, v.Linked())
	}
}

// If a writer's connection dies between the entry and its link, neither is stored, and no other writer is blocked.
func TestAuditChainAfterAWriterDied(t *testing.T) { servers.EachSQL(t, testAuditChainAfterAWriterDied) }

func testAuditChainAfterAWriterDied(t *testing.T) {
	s, db := migrated(t)
	insertEntries(t, s, 2)
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	q := s.queries.WithTx(tx)
	locked := q.AuditChainLock(t.Context())
	_, inserted := q.AuditInsert(t.Context(), controlplanedb.AuditInsertParams{Actor: "dead", Subject: []byte{}})
	if err := errors.Join(locked, inserted); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- s.InsertAudit(context.WithoutCancel(t.Context()), auditEntry) }()
	var id int64
	if err := tx.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	exec(t, db, fmt.Sprintf("KILL %d", id))
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	wantWhole(t, s, 3, 0)
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit WHERE actor = 'dead'"); n != 0 {
		t.Errorf("%d entries of the writer that died", n)
	}
}

// If a link exists before its entry, the write fails: the entry does not count as written before.
func TestAuditLinkMadeAhead(t *testing.T) { servers.EachSQL(t, testAuditLinkMadeAhead) }

func testAuditLinkMadeAhead(t *testing.T) {
	s, db := migrated(t)
	exec(t, db, `INSERT INTO ratelimit_audit_chain VALUES (1, 0, '', 'x'), (2, 0, '', 'x'), (3, 0, '', 'x'), (4, 0, '', 'x'),
		(5, 0, '', 'x'), (6, 0, '', 'x')`)
	e := auditEntry
	e.ID = "one"
	if err := s.InsertAudit(t.Context(), e); err == nil || !strings.Contains(err.Error(), "link entry") {
		t.Errorf("%v", err)
	}
	if n := count(t, db, "SELECT COUNT(*) FROM ratelimit_audit"); n != 0 {
		t.Errorf("%d entries", n)
	}
}
