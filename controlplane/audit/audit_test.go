package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
)

type auditLog struct {
	rows []Entry
	err  error
}

func (a *auditLog) InsertAudit(_ context.Context, e Entry) error {
	if a.err == nil {
		a.rows = append(a.rows, e)
	}
	return a.err
}

// Every change needs an actor and a reason.
func TestByValidate(t *testing.T) {
	for name, tc := range map[string]struct {
		by   controlplane.By
		want string
	}{
		"no actor":        {controlplane.By{Actor: "", Reason: "deploy"}, "actor is empty (1 to 191 bytes)"},
		"blank actor":     {controlplane.By{Actor: " \t", Reason: "deploy"}, "actor is empty (1 to 191 bytes)"},
		"long actor":      {controlplane.By{Actor: strings.Repeat("a", 192), Reason: "deploy"}, "actor is 192 bytes long (1 to 191)"},
		"no reason":       {controlplane.By{Actor: "ann", Reason: ""}, "reason is empty (1 to 500 bytes)"},
		"long reason":     {controlplane.By{Actor: "ann", Reason: strings.Repeat("é", 251)}, "reason is 502 bytes long (1 to 500)"},
		"actor not UTF-8": {controlplane.By{Actor: "an\xff", Reason: "deploy"}, "actor is not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) { controltest.WantInvalid(t, tc.by.Validate(), tc.want) })
	}
	if err := (controlplane.By{Actor: strings.Repeat("a", 191), Reason: strings.Repeat("r", 500)}).Validate(); err != nil {
		t.Errorf("the longest: %v", err)
	}
}

func TestWriteAudit(t *testing.T) {
	ok := Entry{By: controlplane.By{Actor: "ann", Reason: "deploy"}, Action: "cleanup.pause", Subject: "cleanup", Before: "{}", After: `{"paused":true}`}
	log := &auditLog{}
	if err := Write(t.Context(), log, ok); err != nil || len(log.rows) != 1 || log.rows[0] != ok {
		t.Fatalf("%v, rows %+v", err, log.rows)
	}
	for want, change := range map[string]func(*Entry){
		"reason is empty":                      func(e *Entry) { e.Reason = "" },
		"action is 65 bytes long (1 to 64)":    func(e *Entry) { e.Action = strings.Repeat("a", 65) },
		"subject is 0 bytes long (1 to 800)":   func(e *Entry) { e.Subject = "" },
		"after is 61441 bytes long (at most 6": func(e *Entry) { e.After = strings.Repeat("a", 61441) },
		"before is not valid UTF-8":            func(e *Entry) { e.Before = "\xff" },
	} {
		e := ok
		change(&e)
		controltest.WantInvalid(t, Write(t.Context(), log, e), want)
	}
	log.err = errors.New("connection lost")
	if err := Write(t.Context(), log, ok); !errors.Is(err, log.err) || !strings.Contains(err.Error(), "audit cleanup.pause of cleanup by ann") {
		t.Errorf("error %v", err)
	}
}

// auditRows is a Log of entries by ID, newest first.
type auditRows []Record

func (a auditRows) Audit(_ context.Context, before int64, rows int) (page []Record, err error) {
	for _, r := range a {
		if r.Row < before && len(page) < rows {
			page = append(page, r)
		}
	}
	return page, nil
}

func (auditRows) AuditLinks(context.Context, int64, int) (Links, error) {
	return Links{}, errors.ErrUnsupported
}

// A search returns entries that match the filter, reads a bounded part of the log, and returns where to continue.
func TestSearchAudit(t *testing.T) {
	var log auditRows
	add := func(row int64, actor, subject string) { // a second after the entry before
		kind, _, _ := strings.Cut(subject, " ")
		log = append(log, Record{Row: row, At: time.Unix(row, 0), Entry: Entry{By: controlplane.By{Actor: actor}, Action: kind + ".set", Subject: subject}})
	}
	add(9003, "ann", "override acme/api/user_*")
	add(9002, "bob", "namespace acme/api")
	add(9001, "ann", "key acme/apis/user_1")
	for row := int64(9000); row > 1; row-- {
		add(row, "bot", "cleanup")
	}
	add(1, "ann", "override acme/api/x")
	for name, tc := range map[string]struct {
		f        Filter
		before   int64
		limit    int
		want     []int64
		searched int64
	}{
		"all":             {Filter{}, 0, 2, []int64{9003, 9002}, 0},
		"an actor":        {Filter{Actor: "ann"}, 0, 10, []int64{9003, 9001}, 4004},
		"a full page":     {Filter{Actor: "ann"}, 0, 1, []int64{9003}, 9003},
		"the rest":        {Filter{Actor: "ann"}, 4004, 10, []int64{1}, 0},
		"a workspace":     {Filter{Workspace: "acme"}, 0, 10, []int64{9003, 9002, 9001}, 4004},
		"a namespace":     {Filter{Workspace: "acme", Namespace: "api"}, 0, 10, []int64{9003, 9002}, 4004},
		"an action":       {Filter{Action: "override.set"}, 0, 10, []int64{9003}, 4004},
		"a kind":          {Filter{Action: "override"}, 0, 10, []int64{9003}, 4004},
		"a part of one":   {Filter{Action: "over"}, 0, 10, nil, 4004},
		"an object":       {Filter{Subject: "user_"}, 0, 10, []int64{9003, 9001}, 4004},
		"from then on":    {Filter{SinceMs: 9002_000}, 0, 10, []int64{9003, 9002}, 0}, // and reads no further
		"up to then":      {Filter{UntilMs: 9002_000, Actor: "ann"}, 0, 10, []int64{9001}, 4004},
		"in between":      {Filter{SinceMs: 8999_000, UntilMs: 9001_000}, 0, 10, []int64{9000, 8999}, 0},
		"nothing of that": {Filter{Workspace: "clean"}, 4004, 10, nil, 0},
	} {
		page, searched, err := Search(t.Context(), log, tc.f, tc.before, tc.limit)
		var got []int64
		for _, r := range page {
			got = append(got, r.Row)
		}
		if !slices.Equal(got, tc.want) || searched != tc.searched || err != nil {
			t.Errorf("%s: %v, %d, %v; want %v, %d", name, got, searched, err, tc.want, tc.searched)
		}
	}
	for words, f := range map[string]Filter{
		"workspace is empty (a namespace needs its workspace)":          {Namespace: "api"},
		"actor is 192 bytes long (at most 191)":                         {Actor: strings.Repeat("a", 192)},
		"action is 65 bytes long (at most 64)":                          {Action: strings.Repeat("a", 65)},
		"subject is 801 bytes long (at most 800)":                       {Subject: strings.Repeat("a", 801)},
		"since_ms is -1 (0 for the beginning, or Unix ms)":              {SinceMs: -1},
		"until_ms is 1000 (0 for now, or Unix ms after since_ms, 1000)": {SinceMs: 1000, UntilMs: 1000},
		"until_ms is -1 (0 for now":                                     {UntilMs: -1},
	} {
		_, _, err := Search(t.Context(), log, f, 0, 1)
		controltest.WantInvalid(t, err, words)
	}
	_, _, err := Search(t.Context(), log, Filter{Actor: "a"}, 0, 501)
	controltest.WantInvalid(t, err, "limit is 501 (1 to 500")
}

// links is a Log of any number of entries, each with an After of some bytes.
type links int

func (links) Audit(context.Context, int64, int) ([]Record, error) {
	return nil, errors.ErrUnsupported
}

func (l links) AuditLinks(_ context.Context, after int64, rows int) (page Links, err error) {
	for i := range rows {
		var link Link
		link.ID, link.After = uint64(after)+uint64(i)+1, strings.Repeat("x", int(l))
		page.Links = append(page.Links, link)
	}
	return page, nil
}

// "At most limit entries, with at most ExportBytesMax of text", but always the first entry.
func TestExportAuditIsBounded(t *testing.T) {
	for bytes, want := range map[links]int{0: ExportMax, 1 << 20: 4, ExportBytesMax + 1: 1} {
		page, err := Export(t.Context(), bytes, 7, 0)
		if err != nil || len(page.Links) != want || !page.More || page.Links[0].ID != 8 {
			t.Errorf("of %d bytes each: %d entries, more %t, %v; want %d", bytes, len(page.Links), page.More, err, want)
		}
	}
}
