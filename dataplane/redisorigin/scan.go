package redisorigin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
)

// Scan implements store.Relayed: a SCAN of the server, or of a Cluster's masters in turn. A page takes max keys of any
// kind from the server, so it may be empty. It returns an error if the Cluster's nodes have changed since the first
// page. A failover during a scan can hide cells from it.
func (h *Origin) Scan(ctx context.Context, shard int, cursor uint64, max int) (
	cells []store.Change, next uint64, err error) {
	s, err := h.shard(shard, 0, nil)
	if err != nil {
		return nil, 0, err
	}
	if max < 1 {
		return nil, 0, fmt.Errorf("redisorigin: scan: max is %d, want >= 1", max)
	}
	if err = ctx.Err(); err == nil {
		cells, next, err = s.scan(ctx, cursor, min(max, store.ChangesPage))
	}
	if err != nil {
		return nil, 0, fmt.Errorf("redisorigin: scan at %s: %w", s.where, err)
	}
	return cells, next, nil
}

func (s *shard) scan(ctx context.Context, cursor uint64, max int) ([]store.Change, uint64, error) {
	at, err := s.place(ctx, cursor)
	if err != nil {
		return nil, 0, err
	}
	pattern := globEscaped(s.prefix) + ":{origin*"
	keys, serverCursor, err := at.node.ScanType(ctx, at.cursor, pattern, int64(max), "hash").Result()
	if err != nil {
		return nil, 0, err
	}
	cells, err := s.readRecords(ctx, at.node, keys)
	if err != nil {
		return nil, 0, err
	}
	next, err := at.next(serverCursor)
	return cells, next, err
}

// scanPlace is the place at which a scan goes on: a node's cursor. On a Cluster a scan's cursor holds the number of the
// master (8 bits) and a hash of all their addresses (16 bits) above the node's own cursor (40 bits).
type scanPlace struct {
	node        redis.Cmdable
	cursor      uint64
	nth, of     uint64
	fingerprint uint64
}

const (
	nodeCursorBits = 40
	nthBits        = 8
)

func (s *shard) place(ctx context.Context, cursor uint64) (scanPlace, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return scanPlace{node: s.client, cursor: cursor, of: 1}, nil
	}
	var mu sync.Mutex
	masters := make(map[string]*redis.Client)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		masters[c.Options().Addr] = c
		return nil
	})
	if err != nil {
		return scanPlace{}, err
	}
	var addresses []string
	for a := range masters {
		addresses = append(addresses, a)
	}
	slices.Sort(addresses)
	p := scanPlace{of: uint64(len(addresses)), fingerprint: xxhash.Sum64String(strings.Join(addresses, " ")) >> 48}
	if cursor != 0 {
		p.cursor, p.nth = cursor&(1<<nodeCursorBits-1), cursor>>nodeCursorBits&(1<<nthBits-1)
	}
	if p.nth >= p.of || p.of > 1<<nthBits || cursor != 0 && cursor>>(nodeCursorBits+nthBits) != p.fingerprint {
		return scanPlace{}, fmt.Errorf("the Cluster's masters have changed: begin again (masters: %d)", p.of)
	}
	p.node = masters[addresses[p.nth]]
	return p, nil
}

// next returns the scan's cursor after a page that ended at a node's cursor.
func (p scanPlace) next(cursor uint64) (uint64, error) {
	if cursor == 0 {
		if p.nth++; p.nth == p.of {
			return 0, nil
		}
	}
	if p.of == 1 && p.fingerprint == 0 {
		return cursor, nil
	}
	if cursor >= 1<<nodeCursorBits {
		return 0, fmt.Errorf("the cursor %d is out of bounds", cursor)
	}
	return p.fingerprint<<(nodeCursorBits+nthBits) | p.nth<<nodeCursorBits | cursor, nil
}

// readRecords returns the cells with a limit among some keys.
func (s *shard) readRecords(ctx context.Context, node redis.Cmdable, keys []string) ([]store.Change, error) {
	pipe := node.Pipeline()
	var read []store.Change
	var cmds []*redis.SliceCmd
	for _, key := range keys {
		if c, ok := s.cellOf(key); ok {
			read = append(read, store.Change{Cell: c})
			cmds = append(cmds, pipe.HMGet(ctx, key, "a", "r", "k", "l"))
		}
	}
	if len(cmds) == 0 {
		return nil, nil
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	var cells []store.Change
	for i, cmd := range cmds {
		n, ok := recordCounts(cmd.Val())
		if !ok {
			s.noteJunk(fmt.Errorf("redisorigin: %v: %w", read[i].Cell, errJunk))
			continue
		}
		if read[i].Total, read[i].Limit = min(n[0]+max(n[1], n[2]), store.CountMax), n[3]; n[3] > 0 {
			cells = append(cells, read[i])
		}
	}
	return cells, nil
}

// recordCounts reads the four fields of readRecords.
func recordCounts(values []any) (n [4]int64, ok bool) {
	if len(values) != len(n) {
		return n, false
	}
	for i, v := range values {
		if v == nil {
			continue
		}
		text, _ := v.(string)
		count, isCount := parseCount(text)
		if !isCount || count > store.CountMax {
			return n, false
		}
		n[i] = count
	}
	return n, true
}

// globEscaped returns a pattern that matches only s.
func globEscaped(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
