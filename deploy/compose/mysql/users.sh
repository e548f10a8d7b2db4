#!/bin/bash
# Runs once, when MySQL's data directory is made. Tables come later, with weir-control, and a
# right to a table cannot be granted before it is there, unless CREATE is granted too: so these are
# rights to the database, and CREATE for the one table from which nodes delete.
# In production grant what schema/README.md lists, table by table.
set -euo pipefail
MYSQL_PWD=$(cat /run/secrets/mysql-root) mysql --user=root --socket=/var/run/mysqld/mysqld.sock <<SQL
CREATE USER 'weir_node'@'%' IDENTIFIED BY '$(cat /run/secrets/node-password)';
GRANT SELECT, INSERT, UPDATE ON weir.* TO 'weir_node'@'%';
GRANT CREATE, DELETE ON weir.ratelimit_news TO 'weir_node'@'%';
CREATE USER 'weir_control'@'%' IDENTIFIED BY '$(cat /run/secrets/control-password)';
GRANT ALL PRIVILEGES ON weir.* TO 'weir_control'@'%';
SQL
