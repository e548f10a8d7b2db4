package store

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckRegion returns an error if the configured name of a region cannot be shown everywhere: it must have 1 to
// RegionBytesMax bytes of UTF-8 without control characters. Stores accept any bytes, so readers must accept any bytes
// too.
func CheckRegion(name string) error {
	switch {
	case len(name) < 1 || len(name) > RegionBytesMax:
		return fmt.Errorf("region is %d bytes long (1 to %d)", len(name), RegionBytesMax)
	case !utf8.ValidString(name):
		return fmt.Errorf("region is %q, which is not UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("region is %q, which has control characters", name)
	}
	return nil
}

// Validate returns an error if the row is out of a store's bounds. The error wraps ErrRefused and names the field and
// the bound.
func (r FeedRow) Validate() error {
	if err := r.Stream.Validate(); err != nil {
		return err
	}
	switch {
	case r.Sequence < 1:
		return fmt.Errorf("%w: sequence is %d, want >= 1", ErrRefused, r.Sequence)
	case r.Snapshot < 0 || r.Snapshot > r.Sequence:
		return fmt.Errorf("%w: snapshot is %d (0 to the row's sequence, %d)", ErrRefused, r.Snapshot, r.Sequence)
	case r.Last && r.Snapshot == 0:
		return fmt.Errorf("%w: last is set and snapshot is 0: the row is a part of no snapshot", ErrRefused)
	case len(r.Payload) > FeedBytesMax:
		return fmt.Errorf("%w: payload is %d bytes long (at most %d)", ErrRefused, len(r.Payload), FeedBytesMax)
	}
	return nil
}

// Validate returns an error that wraps ErrRefused if the stream's name is out of a store's bounds.
func (s Stream) Validate() error {
	switch {
	case len(s.Region) < 1 || len(s.Region) > RegionBytesMax:
		return fmt.Errorf("%w: region is %d bytes long (1 to %d)", ErrRefused, len(s.Region), RegionBytesMax)
	case s.Shard < 0 || s.Shard >= FeedShardsMax:
		return fmt.Errorf("%w: shard is %d (0 to %d)", ErrRefused, s.Shard, FeedShardsMax-1)
	}
	return nil
}
