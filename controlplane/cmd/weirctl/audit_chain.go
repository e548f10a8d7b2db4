package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/shared/auditchain"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// auditLineMax bounds a line of an exported log, in bytes.
const auditLineMax = 2 << 20

type auditExport struct {
	After int64  `placeholder:"ID" help:"Only changes after this one, for example since the last export."`
	File  string `short:"f" placeholder:"FILE" help:"Write to this file instead of stdout."`
}

// Run prints the log, oldest first.
func (e auditExport) Run(c *call) error {
	if e.File == "" {
		return e.write(c, c.stdout)
	}
	return files.ReplaceWith(e.File, 0o644, func(w io.Writer) error { return e.write(c, w) })
}

func (e auditExport) write(c *call, w io.Writer) error {
	out := bufio.NewWriter(w)
	_, err := c.auditPages(e.After, func(page *controlv1.ExportAuditResponse) error {
		for _, l := range page.GetLinks() {
			if err := writeLine(out, l); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, out.Flush())
}

// writeLine writes a link as one line of JSON. The same link always gives the same line.
func writeLine(w io.Writer, l *controlv1.AuditLink) error {
	text, err := protojson.Marshal(l)
	if err != nil {
		return err
	}
	var line bytes.Buffer
	if err := json.Compact(&line, text); err != nil { // protojson's spaces differ from build to build
		return err
	}
	line.WriteByte('\n')
	_, err = line.WriteTo(w)
	return err
}

// auditPages reads the log to its end, and returns the chain of the last page.
func (c *call) auditPages(after int64, each func(*controlv1.ExportAuditResponse) error) (*controlv1.AuditChain, error) {
	for {
		page, err := c.auditPage(after)
		if err != nil {
			return nil, err
		}
		if err := each(page); err != nil {
			return nil, err
		}
		links := page.GetLinks()
		if !page.GetHasMore() || len(links) == 0 {
			return page.GetChain(), nil
		}
		after = links[len(links)-1].GetEntry().GetId()
	}
}

// auditPage reads a page with its own timeout, because the whole log can take longer than --timeout.
func (c *call) auditPage(after int64) (*controlv1.ExportAuditResponse, error) {
	ctx, cancel := context.WithTimeout(c.patient, callTimeout)
	defer cancel()
	return apiclient.Ask(ctx, c.Audit.ExportAudit, &controlv1.ExportAuditRequest{AfterId: after})
}

type auditVerify struct {
	From int64  `placeholder:"ID" help:"Begin at this change, and trust its hash of the change before. Default: the beginning of the chain."`
	Head string `placeholder:"HASH" help:"A hash that an earlier verify printed: fail unless a change has it. Detects newest changes that were cut off, and a chain that was computed again."`
	File string `short:"f" placeholder:"FILE" help:"Verify this file, which weirctl audit export wrote, instead of the API's log."`
}

// Run verifies the hash chain.
func (a auditVerify) Run(c *call) error {
	if a.From < 0 {
		return &hinted{fmt.Errorf("--from is %d, want the id of a change", a.From), exitUsage, "See weirctl audit."}
	}
	v := auditchain.From(uint64(a.From))
	if a.Head != "" {
		hash, err := auditchain.ParseHash(a.Head)
		if err != nil {
			return &hinted{fmt.Errorf("--head: %w", err), exitUsage, "Name a hash that weirctl audit verify has printed."}
		}
		v.Expect(hash)
	}
	walk := a.log
	if a.File != "" {
		walk = a.file
	}
	err := walk(c, v)
	if broken := (*auditchain.Broken)(nil); errors.As(err, &broken) {
		return &hinted{err, exitFailure, "See it with weirctl audit --states, and compare it with an export or a backup. " +
			"Verify the changes after it with --from."}
	}
	if err != nil {
		return err
	}
	return c.whole(v)
}

// log verifies the log of the API.
func (a auditVerify) log(c *call, v *auditchain.Verifier) error {
	chain, err := c.auditPages(max(0, a.From-1), func(page *controlv1.ExportAuditResponse) error {
		v.Begins(uint64(page.GetChain().GetFirstId()))
		for _, l := range page.GetLinks() {
			if err := verifyNext(v, l); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	hash, err := readHash(chain.GetLastHash())
	if err != nil {
		return err
	}
	return v.Finish(auditchain.End{ID: uint64(chain.GetLastId()), Hash: hash})
}

// file verifies an export. The end of an export proves nothing, because the file can be cut off anywhere.
func (a auditVerify) file(_ *call, v *auditchain.Verifier) error {
	f, err := os.Open(a.File)
	if err != nil {
		return &hinted{err, exitUsage, "Name a file that weirctl audit export wrote with -f."}
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, auditLineMax)
	n := 0
	for lines.Scan() {
		n++
		var l controlv1.AuditLink
		if err := protojson.Unmarshal(lines.Bytes(), &l); err != nil {
			return notExported(a.File, n, err)
		}
		if l.GetEntry().GetId() < a.From {
			continue
		}
		if err := verifyNext(v, &l); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return notExported(a.File, n+1, err)
	}
	return v.Finish(v.Last())
}

func notExported(file string, line int, err error) error {
	return &hinted{fmt.Errorf("line %d of %s: %w", line, file, err), exitUsage,
		"Name a file that weirctl audit export wrote with -f."}
}

func verifyNext(v *auditchain.Verifier, l *controlv1.AuditLink) error {
	e := l.GetEntry()
	entry := auditchain.Entry{
		ID: uint64(e.GetId()), AtMs: uint64(e.GetAtMs()), Actor: e.GetActor(), Action: e.GetAction(),
		Subject: e.GetSubject(), Reason: e.GetReason(), Before: e.GetBefore(), After: e.GetAfter(), WriteID: l.GetWriteId(),
	}
	if exact := l.GetSubject(); len(exact) > 0 {
		entry.Subject = string(exact)
	}
	link := auditchain.Link{Follows: uint64(l.GetFollows())}
	var wrong error
	link.Previous, wrong = readHash(l.GetPreviousHash())
	if wrong == nil {
		link.Hash, wrong = readHash(l.GetHash())
	}
	if wrong != nil {
		return fmt.Errorf("entry %d: %w", e.GetId(), wrong)
	}
	return v.Next(&entry, link)
}

func readHash(text string) (auditchain.Hash, error) {
	if text == "" {
		return auditchain.Hash{}, nil
	}
	return auditchain.ParseHash(text)
}

// whole prints the result of a verification.
func (c *call) whole(v *auditchain.Verifier) error {
	last := v.Last()
	if c.form.documents() {
		return c.document(map[string]any{"linked": v.Linked(), "unlinked": v.Unlinked(), "lastId": last.ID,
			"head": last.Hash.String()})
	}
	if v.Unlinked() > 0 {
		format.Head(c.stdout, "%s older than the chain: they cannot be verified", format.Plural(v.Unlinked(), "change"))
	}
	if v.Linked() == 0 {
		format.Head(c.stdout, "the chain has not begun: it begins with the next change")
		return nil
	}
	format.Head(c.stdout, "%s in the chain, all as they were written; the newest is %d", format.Plural(v.Linked(),
		"change"), last.ID)
	format.Head(c.stdout, "head %v", last.Hash)
	format.Head(c.stdout, "Keep the head outside the database, and pass it with --head next time.")
	return nil
}
