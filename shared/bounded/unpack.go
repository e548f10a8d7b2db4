package bounded

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
)

var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// unpackedRoomMin is the size of the first buffer, which grows fourfold whenever it is full.
const unpackedRoomMin = 4 << 10

// Unpack decompresses a gzip body to at most `most` bytes. It calls grow, which may be nil, before it allocates n more
// bytes. A body that turns out to be long needs a place.
func Unpack(ctx context.Context, packed io.Reader, most int64, place *Place,
	grow func(ctx context.Context, n int64) error) ([]byte, error) {
	r, _ := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(r)
	if err := r.Reset(packed); err != nil {
		return nil, notGzip(err)
	}
	var unpacked []byte
	for room := unpackedRoomMin; ; room *= 4 {
		room = min(room, int(most)+1)
		if err := place.For(ctx, room); err != nil {
			return nil, err
		}
		if grow != nil {
			if err := grow(ctx, int64(room-cap(unpacked))); err != nil {
				return nil, err
			}
		}
		unpacked = append(make([]byte, 0, room), unpacked...)
		ended, err := fill(r, &unpacked)
		switch {
		case err != nil:
			return nil, notGzip(err)
		case int64(len(unpacked)) > most:
			return nil, refuse(BoundUnpacked, "body unpacks to more than %d bytes", most)
		case ended:
			return unpacked, nil
		}
	}
}

func notGzip(err error) error {
	return fmt.Errorf("body is not gzip, although its headers declare it: %w", err)
}

// fill reads until b is full or r has ended.
func fill(r io.Reader, b *[]byte) (ended bool, err error) {
	for len(*b) < cap(*b) {
		n, err := r.Read((*b)[len(*b):cap(*b)])
		*b = (*b)[:len(*b)+n]
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}
