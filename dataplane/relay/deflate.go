package relay

import (
	"bytes"
	"compress/flate"
	"fmt"
	"io"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
)

// deflateMin is how long a payload is at least that may gain by compression.
const deflateMin = 256

// A compressor holds some hundred kilobytes, an expander some ten.
var (
	deflaters = sync.Pool{New: func() any {
		w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
		return w
	}}
	inflaters = sync.Pool{New: func() any { return flate.NewReader(nil) }}
)

// shorter deflates a plain payload if that makes it shorter.
func shorter(plain []byte) []byte {
	if len(plain) < deflateMin {
		return plain
	}
	if packed := deflate(plain[1:]); len(packed) < len(plain) {
		return packed
	}
	return plain
}

func deflate(body []byte) []byte {
	var b bytes.Buffer
	b.WriteByte(versionDeflated)
	w := deflaters.Get().(*flate.Writer)
	defer deflaters.Put(w)
	w.Reset(&b)
	_, _ = w.Write(body) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// inflate is the inverse, of what follows the version.
func inflate(packed []byte) ([]byte, error) {
	r := inflaters.Get().(io.ReadCloser)
	defer inflaters.Put(r)
	source := bytes.NewReader(packed)
	if err := r.(flate.Resetter).Reset(source, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", errPayload, err)
	}
	body, err := io.ReadAll(io.LimitReader(r, store.NewsBytesMax))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errPayload, err)
	case len(body) == store.NewsBytesMax:
		return nil, fmt.Errorf("%w: inflated it has %d bytes or more", errPayload, store.NewsBytesMax)
	case source.Len() > 0:
		return nil, fmt.Errorf("%w: %d bytes behind its end", errPayload, source.Len())
	}
	return body, nil
}
