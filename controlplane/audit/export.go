package audit

import (
	"cmp"
	"context"
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/auditchain"
)

const (
	// ExportMax bounds the entries of a page of the log with its chain.
	ExportMax = 200
	// ExportBytesMax bounds the texts of a page, except that the first entry is always included.
	ExportBytesMax = 4 << 20
)

// Link is an entry with its link. An entry outside of the chain has the zero auditchain.Link.
type Link struct {
	auditchain.Entry
	auditchain.Link
}

// Links is a page of the log, oldest first.
type Links struct {
	Links []Link
	More  bool           // more entries follow
	First uint64         // the entry that begins the chain; 0: it has not begun
	End   auditchain.End // the end that the next entry follows
}

// Export returns a page of the log with its hash chain: at most limit entries (0: ExportMax) with an ID above after (0:
// from the oldest), with at most ExportBytesMax of text.
func Export(ctx context.Context, log Log, after int64, limit int) (Links, error) {
	if limit < 0 || limit > ExportMax {
		return Links{}, fmt.Errorf("%w: limit is %d (1 to %d, 0 for %d)", controlplane.ErrInvalid, limit, ExportMax,
			ExportMax)
	}
	if after < 0 {
		return Links{}, fmt.Errorf("%w: after_id is %d (0 for the oldest entries, or an entry's id)",
			controlplane.ErrInvalid, after)
	}
	limit = cmp.Or(limit, ExportMax)
	page, err := log.AuditLinks(ctx, after, limit+1)
	if err != nil {
		return Links{}, err
	}
	if fit := fitting(page.Links, limit); fit < len(page.Links) {
		page.Links, page.More = page.Links[:fit], true
	}
	return page, nil
}

// fitting returns how many of the entries fit in a page.
func fitting(links []Link, limit int) int {
	size := 0
	for i := range links {
		e := &links[i].Entry
		size += len(e.Actor) + len(e.Subject) + len(e.Reason) + len(e.Before) + len(e.After)
		if i == limit || i > 0 && size > ExportBytesMax {
			return i
		}
	}
	return len(links)
}
