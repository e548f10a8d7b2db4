package servers

import (
	"context"
	"os"
	"path/filepath"
)

// mysqlAccounts adds root for 127.0.0.1. MySQL's own root is for localhost, which matches no address without name
// resolution. The account cannot be added while the directory is made, so a server runs this on it and ends.
const mysqlAccounts = `CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY '';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;
SHUTDOWN;
`

func (e installed) initialiseMySQL(ctx context.Context, data string, args []string) error {
	if err := run(ctx, e.program, append(args, "--initialize-insecure")...); err != nil {
		return err
	}
	accounts := data + ".sql"
	if err := os.WriteFile(accounts, []byte(mysqlAccounts), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(accounts) }()
	err := run(ctx, e.program, append(args, "--init-file="+accounts, "--skip-networking", "--mysqlx=OFF", "--skip-log-bin",
		"--socket=mysqld.sock", "--pid-file=mysqld.pid")...)
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(data, "auto.cnf")) // names the server; each copy gets its own name
}
