package redisorigin

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// settingsKept is how long a server keeps its copy of the settings after the last call that stored it.
const settingsKept = 7 * 24 * time.Hour

// settingsCopy is the copy that this process last stored and last read, so that it is neither packed nor sent again.
type settingsCopy struct {
	mu   sync.Mutex
	last settingsDocument
	read settingsRead
}

// settingsRead is a copy that was read.
type settingsRead struct {
	version string
	rows    store.SettingsRows
}

// Settings implements store.Mailbox. A copy that is unchanged costs the server a look at its version.
func (h *Origin) Settings(ctx context.Context, _ string) (rows store.SettingsRows, err error) {
	err = h.last.Call(ctx, len(h.shards), func(shard int) error {
		rows, err = h.shards[shard].settings(ctx)
		return err
	})
	if err != nil {
		return store.SettingsRows{}, fmt.Errorf("redisorigin: %w", err)
	}
	return rows, nil
}

func (s *shard) settings(ctx context.Context) (store.SettingsRows, error) {
	known := s.origin.settings.lastRead()
	key, clock := s.buckets[0].settingsKey, s.buckets[0].clockKey
	reply, err := s.eval(ctx, settingsScript, []string{key, clock}, known.version, settingsPackedMax,
		settingsKept.Milliseconds()).Slice()
	r := scriptReply{rest: reply}
	version, document, bytes, nodes, leftMs, ageMs := r.text(), r.text(), r.int(), r.int(), r.int(), r.int()
	if err == nil {
		err = r.end()
	}
	if err == nil && version != "" && version != known.version {
		known.version = version
		if known.rows, err = (settingsDocument{version, document}).unpack(bytes); err == nil {
			s.origin.settings.keepRead(known)
		}
	}
	switch {
	case err != nil:
		return store.SettingsRows{}, fmt.Errorf("read the settings at %s: %s: %w", s.where, key, err)
	case version == "":
		return store.SettingsRows{}, store.ErrNoSettings
	}
	rows := known.rows
	rows.Version = known.version
	rows.NodesLive, rows.Age = int(nodes), max(0, time.Duration(ageMs)*time.Millisecond)
	if rows.Trial.Number != 0 {
		rows.Trial.Left = time.Duration(leftMs) * time.Millisecond
	}
	return rows, nil
}

func (c *settingsCopy) lastRead() settingsRead {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

func (c *settingsCopy) keepRead(r settingsRead) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = r
}

// StoreSettings implements store.Mailbox. Rows whose document the server has already are not sent again.
func (h *Origin) StoreSettings(ctx context.Context, shard int, holder string, rows store.SettingsRows,
	asOf time.Time,
) error {
	s, err := h.shard(shard, 0, nil)
	if err != nil {
		return err
	}
	document, err := h.settings.pack(rows)
	if err != nil {
		return fmt.Errorf("redisorigin: send settings: %w", err)
	}
	keys := []string{s.buckets[0].settingsKey, s.buckets[0].leaseKey, s.buckets[0].clockKey}
	args := []any{holder, document.version, strconv.Itoa(rows.NodesLive), settingsKept.Milliseconds(),
		bounded(max(0, rows.Trial.Left.Milliseconds())), bounded(max(0, asOf.UnixMilli()))}
	for _, args := range [][]any{args, append(args, document.bytes)} {
		there, err := s.eval(ctx, storeSettingsScript, keys, args...).Int()
		if err == nil && there < 0 {
			err = store.ErrNoLease
		}
		if err != nil {
			return fmt.Errorf("redisorigin: send settings of %d bytes to %s: %w", len(document.bytes), s.where, err)
		}
		if there == 1 {
			break
		}
	}
	return nil
}

// pack returns the rows' document, made again if the rows differ from the last call's.
func (c *settingsCopy) pack(rows store.SettingsRows) (settingsDocument, error) {
	plain, err := plainSettings(rows)
	if err != nil {
		return settingsDocument{}, err
	}
	version := versionOf(plain)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.version != version {
		packed, err := deflate(plain)
		if err != nil {
			return settingsDocument{}, err
		}
		c.last = settingsDocument{version, packed}
	}
	return c.last, nil
}
