#!/bin/bash
# Runs once, when MySQL creates its data directory. weir-control creates the tables later. MySQL grants
# rights to a missing table only together with CREATE. So the nodes' user has rights to the database, and
# CREATE and DELETE for the one table that nodes delete from.
# In production, you should grant the rights that schema/README.md lists, table by table.
set -euo pipefail
MYSQL_PWD=$(cat /run/secrets/mysql-root) mysql --user=root --socket=/var/run/mysqld/mysqld.sock <<SQL
CREATE USER 'weir_node'@'%' IDENTIFIED BY '$(cat /run/secrets/node-password)';
GRANT SELECT, INSERT, UPDATE ON weir.* TO 'weir_node'@'%';
GRANT CREATE, DELETE ON weir.ratelimit_changes TO 'weir_node'@'%';
CREATE USER 'weir_control'@'%' IDENTIFIED BY '$(cat /run/secrets/control-password)';
GRANT ALL PRIVILEGES ON weir.* TO 'weir_control'@'%';
SQL
