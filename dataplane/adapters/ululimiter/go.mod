module github.com/weirhq/weir/dataplane/adapters/ululimiter

go 1.26.0

replace github.com/weirhq/weir => ../../..

require (
	github.com/ulule/limiter/v3 v3.11.2
	github.com/weirhq/weir v0.1.0
)

require (
	github.com/pkg/errors v0.9.1 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
