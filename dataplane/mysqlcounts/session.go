package mysqlcounts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirhq/weir/shared/mysqlclient"
)

// checkSession checks the settings of the database's sessions once, because a pool that Open did not open may have
// others. It runs before the first write, because a truncated name can't be recognized afterwards, and before the first
// read of the change feed.
func (c *Counts) checkSession(ctx context.Context) error {
	if c.checked.Load() {
		return nil
	}
	var mode string
	var autocommit bool
	var packetBytes int64
	err := c.db.QueryRowContext(ctx, "SELECT @@SESSION.sql_mode, @@SESSION.autocommit, @@max_allowed_packet").Scan(&mode,
		&autocommit, &packetBytes)
	switch {
	case err != nil:
		return fmt.Errorf("read the session's settings: %w", err)
	case !strings.Contains(mode, "STRICT_ALL_TABLES") && !strings.Contains(mode, "STRICT_TRANS_TABLES"):
		return fmt.Errorf("sql_mode is %q, which truncates values that do not fit instead of refusing them: open the "+
			"database with mysqlcounts.Open", mode)
	case !autocommit:
		return errors.New("autocommit is off, and this package never commits: open the database with mysqlcounts.Open")
	case packetBytes < mysqlclient.PacketBytesMin:
		return fmt.Errorf("max_allowed_packet is %d, want at least %d: raise it on the server",
			packetBytes, mysqlclient.PacketBytesMin)
	}
	c.checked.Store(true)
	return nil
}
