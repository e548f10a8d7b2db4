package storetest_test

import (
	"context"
	"slices"

	"github.com/weirhq/weir/dataplane/store"
)

type digestRow struct {
	store.Digest
	changed store.Cursor
}

func (s *countsSubject) PublishDigest(ctx context.Context, region string, d store.Digest) error {
	if err := s.ended(ctx); err != nil {
		return err
	}
	if len(d.Filter) > store.DigestBytesMax && s.fault != "takes filters of any length" {
		return store.ErrRefused
	}
	if s.fault != "a digest is whose it says" || d.Region == "" {
		d.Region = region
	}
	if s.fault != "keeps a reference to the filter" {
		d.Filter = slices.Clone(d.Filter)
	}
	s.version++
	at := slices.IndexFunc(s.digests, func(r digestRow) bool { return r.Region == d.Region && r.Node == d.Node })
	switch {
	case at < 0 || s.fault == "digests pile up":
		s.digests = append(s.digests, digestRow{d, s.version})
	default:
		s.digests[at] = digestRow{d, s.version}
	}
	return nil
}

func (s *countsSubject) Digests(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Digest)) (store.Cursor, error) {
	if err := s.ended(ctx); err != nil {
		return after, err
	}
	for _, d := range s.digests {
		if d.Region == region && s.fault != "yields the region's own digests" || d.ExpiresAtMs <= nowMs && s.fault != "digests never expire" {
			continue
		}
		if d.changed < after && s.fault != "yields all digests each time" {
			continue
		}
		if s.fault != "hands out the filter that it keeps" {
			d.Filter = slices.Clone(d.Filter)
		}
		if s.fault == "filters are text" {
			d.Filter = []byte(string([]rune(string(d.Filter))))
		}
		yield(d.Digest)
	}
	return s.version + 1, nil
}
