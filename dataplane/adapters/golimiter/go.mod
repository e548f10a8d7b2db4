module github.com/weirhq/weir/dataplane/adapters/golimiter

go 1.26.0

replace github.com/weirhq/weir => ../../..

require (
	github.com/sethvargo/go-limiter v1.1.0
	github.com/weirhq/weir v0.1.0
)

require (
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
)
