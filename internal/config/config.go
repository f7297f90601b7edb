// Package config is the daemon's configuration: one struct, filled from
// defaults, one TOML file, environment variables and flags, each of which wins
// over the ones before it. The names of variables and flags follow from the
// key: limits.sandboxes is AGENTBOX_LIMITS_SANDBOXES and --limits-sandboxes.
// docs/CONFIG.md is written from the struct.
package config

import "time"

// Config is everything that can be set. Sizes are bytes. A field's doc tag is
// its documentation, its default tag what holds when nobody sets it.
type Config struct {
	DataDir       string   `key:"data_dir" doc:"Directory of everything that agentbox keeps. Empty: /var/lib/agentbox, or $XDG_DATA_HOME/agentbox for an ordinary user."`
	Listen        string   `key:"listen" default:"127.0.0.1:8700" doc:"Address and port of the one HTTP port. Other addresses than loopback need API keys; use TLS there. On a loopback address requests must call it so, or by the host of an allow_origin."`
	Socket        string   `key:"socket" doc:"Path of the local socket, which the daemon's own user and root may use without a key. Empty: /run/agentbox/agentbox.sock or $XDG_RUNTIME_DIR/agentbox.sock; in another data directory its agentbox.sock."`
	MetricsListen string   `key:"metrics_listen" doc:"A further address that serves /metrics without a key, on loopback only. Empty: none; /metrics of the main port takes an admin key."`
	NoAuth        bool     `key:"no_auth" default:"false" doc:"Let in everybody who reaches the port, as an admin. Refused unless listen is a loopback address."`
	PortRange     string   `key:"port_range" default:"1024-65535" doc:"Ports of this machine's loopback interface that sandboxes' published ports may have."`
	AllowOrigin   []string `key:"allow_origin" doc:"Origins of web pages that may use the API, such as https://app.example. All others are refused. A proxy in front of a loopback address is named here, too."`
	Ephemeral     bool     `key:"ephemeral" default:"false" doc:"Destroy all sandboxes when the daemon is told to stop."`
	Storage       string   `key:"storage" doc:"Directory of the storage that sandboxes of one tenant share and that outlives them: /workspace and /mnt/user-data/outputs of sandboxes with a tenant_id. Everybody must be able to go through what is above it (mode 0711). Empty: there is none."`

	TLS       TLS       `key:"tls" doc:"Encryption of the main port. Files that change are read again."`
	HTTP      HTTP      `key:"http" doc:"Bounds of what one client may ask of the server."`
	RateLimit RateLimit `key:"rate_limit" doc:"Requests per second; 0 = no limit. Twice as many may come at once. More get a 429. The local socket has none."`
	Sandbox   Sandbox   `key:"sandbox" doc:"Defaults of new sandboxes and commands, where a request does not say."`
	Limits    Limits    `key:"limits" doc:"The operator's maximums: what no request gets more of."`
	GRPC      GRPC      `key:"grpc" doc:"The door for gRPC, gRPC-Web and Connect. The one port serves it, too."`
	Volumes   Volumes   `key:"volumes" doc:"Named volumes and the storage of tenants."`
	Egress    Egress    `key:"egress" doc:"What sandboxes may reach of the network at most, and the log of what they reached."`
	Secrets   Secrets   `key:"secrets" doc:"What owners keep for requests of their sandboxes, which never see it."`
	Images    Images    `key:"images" doc:"Where images come from."`
	Autocoder Autocoder `key:"autocoder" doc:"What clients and deployments that were made for autocoder rely on; see SANDBOXES.md."`
	Audit     Audit     `key:"audit" doc:"The record of who did what."`
	Log       Log       `key:"log" doc:"The daemon's own log, on standard error."`
}

// TLS encrypts the main port; both files or none.
type TLS struct {
	Cert string `key:"cert" doc:"File with the certificate chain, PEM."`
	Key  string `key:"key" doc:"File with the private key, PEM."`
}

// HTTP bounds clients.
type HTTP struct {
	HeaderTimeout time.Duration `key:"header_timeout" default:"10s" doc:"Time to send the head of a request."`
	BodyTimeout   time.Duration `key:"body_timeout" default:"30s" doc:"Time to send a JSON body; of a stream, the longest silence."`
	WriteTimeout  time.Duration `key:"write_timeout" default:"60s" doc:"Longest time in which a client takes nothing of its answer."`
	IdleTimeout   time.Duration `key:"idle_timeout" default:"2m" doc:"How long a connection without a request stays open."`
	MaxHeader     int64         `key:"max_header" unit:"size" min:"4096" default:"64k" doc:"Size of a request's head."`
	StopGrace     time.Duration `key:"stop_grace" default:"10s" doc:"Time that running requests have to end when the daemon stops."`
}

// RateLimit bounds requests per second.
type RateLimit struct {
	PerKey     float64  `key:"per_key" default:"1000" doc:"Of one API key."`
	PerAddress float64  `key:"per_address" default:"0" doc:"Of one address (IPv6: one /64 network), whatever its keys."`
	Refused    float64  `key:"refused" default:"20" doc:"Refused authentications of one address; over that they are answered with 429 and not recorded."`
	Exempt     []string `key:"exempt" doc:"Addresses and networks, such as 10.0.0.0/8, that per_address and refused don't count."`
}

// Sandbox has the defaults of new sandboxes.
type Sandbox struct {
	Image       string        `key:"image" default:"default" doc:"Image."`
	Memory      int64         `key:"memory" unit:"size" default:"512m" doc:"Memory."`
	CPUs        float64       `key:"cpus" default:"1" doc:"Cores."`
	Disk        int64         `key:"disk" unit:"size" default:"4g" doc:"Writable files."`
	Pids        int64         `key:"pids" default:"256" min:"1" doc:"Processes and threads."`
	IdleTimeout time.Duration `key:"idle_timeout" default:"30m" doc:"Time without use until a sandbox is destroyed or stopped. 0 = never."`
	Lifetime    time.Duration `key:"lifetime" default:"24h" doc:"Time until a sandbox is destroyed. 0 = never."`
	ExecTimeout time.Duration `key:"exec_timeout" default:"1h" doc:"Time that a command may take."`
	MaxOutput   int64         `key:"max_output" unit:"size" default:"10000000" doc:"Captured bytes of each of a command's two streams."`
}

// Limits are maximums.
type Limits struct {
	Requests          int64         `key:"requests" default:"2000" doc:"Requests of one owner that are served at the same time, open streams among them; more get a 429. 0 = no maximum. The local socket has none."`
	Sandboxes         int64         `key:"sandboxes" default:"100" min:"1" doc:"Sandboxes in all, those that are stopped or failed among them."`
	SandboxesPerOwner int64         `key:"sandboxes_per_owner" default:"50" min:"1" doc:"Those of one owner."`
	Creates           int64         `key:"creates" default:"0" doc:"Sandboxes that are made at the same time. 0 = number of cores."`
	Memory            int64         `key:"memory" unit:"size" default:"0" doc:"Memory of one sandbox. 0 = nine tenths of the machine's."`
	CPUs              float64       `key:"cpus" default:"0" doc:"Cores of one sandbox. 0 = the machine's."`
	Disk              int64         `key:"disk" unit:"size" default:"64g" doc:"Writable files of one sandbox."`
	Pids              int64         `key:"pids" default:"4096" min:"1" doc:"Processes and threads of one sandbox."`
	Execs             int64         `key:"execs" default:"64" min:"1" doc:"Commands that run at the same time in one sandbox; further ones wait."`
	ExecTimeout       time.Duration `key:"exec_timeout" default:"24h" doc:"Time of one command."`
	MaxOutput         int64         `key:"max_output" unit:"size" default:"100000000" doc:"Captured bytes of each stream of a command."`
	IdleTimeout       time.Duration `key:"idle_timeout" default:"0" doc:"Time without use. 0 = no maximum."`
	Lifetime          time.Duration `key:"lifetime" default:"0" doc:"Life of a sandbox. 0 = no maximum."`
}

// GRPC has what is the door's own.
type GRPC struct {
	Listen         string        `key:"listen" default:"auto" doc:"A further address of the server, for clients that know no other than gRPC's. auto: 127.0.0.1:50051, or none, with a warning, while another program has that. none: none. Encrypted as the main port is."`
	Image          string        `key:"image" default:"agentbox-sandbox:latest" doc:"Image of sessions."`
	SessionTimeout time.Duration `key:"session_timeout" default:"30m" doc:"Time without use until a session is destroyed. 0 = never."`
}

// Values of GRPC.Listen that are no addresses.
const (
	ListenAuto = "auto"
	ListenNone = "none"
)

// Volumes bounds what outlives sandboxes.
type Volumes struct {
	Size          int64 `key:"size" unit:"size" min:"16777216" default:"4g" doc:"Size of a volume whose maker does not say."`
	MaxSize       int64 `key:"max_size" unit:"size" min:"16777216" default:"64g" doc:"Largest size of a volume."`
	PerOwner      int64 `key:"per_owner" default:"100" min:"1" doc:"Volumes of one owner."`
	SpacePerOwner int64 `key:"space_per_owner" unit:"size" default:"256g" min:"16777216" doc:"What the sizes of one owner's volumes may add up to."`
	StorageSize   int64 `key:"storage_size" unit:"size" min:"16777216" default:"4g" doc:"Storage of one tenant, where the file system of storage has project quotas. Elsewhere nothing bounds it."`
	Tenants       int64 `key:"tenants_per_owner" default:"1000" min:"1" doc:"Tenants of one owner that have storage. One more is refused until the storage of another is removed."`
}

// Images says which images are pulled.
type Images struct {
	Allow []string `key:"allow" doc:"Repositories that a new sandbox's missing image may be pulled from, such as alpine, ghcr.io/team/* or registry:5000/**. A registry that a wildcard stands for must have a public address. Empty: only what an admin pulled, loaded or built."`
}

// Egress says what sandboxes may reach at most. What one may reach says its own
// network, which is none by default.
type Egress struct {
	Full         bool     `key:"full" default:"false" doc:"Sandboxes may have the network mode full: all public addresses, on all ports."`
	AllowRanges  []string `key:"allow_ranges" doc:"Addresses that are not public, such as 10.1.0.0/16, and that sandboxes may reach as far as their network names the host. Loopback and link-local addresses must be named by a range within theirs, this machine's own and metadata services by the one address."`
	PrivateHosts []string `key:"private_hosts" doc:"Names, exact ones, that may have addresses in private networks."`
	Resolver     string   `key:"resolver" doc:"DNS server that is asked for the names that sandboxes may reach, such as 192.0.2.53 or 192.0.2.53:5353, in place of those of this machine. Names in this machine's hosts file are not asked for."`
	CABundle     string   `key:"ca_bundle" doc:"Certificates of authorities that programs in sandboxes trust besides those of their image: the path of a PEM file, or system for this machine's own. It is read when the server starts. Empty: none."`
	Connections  int64    `key:"connections" default:"224" min:"1" doc:"Connections of one sandbox that are open at the same time; a sandbox has 224 at most."`
	Rate         int64    `key:"rate" unit:"size" default:"0" doc:"Bytes per second of one sandbox, in each direction. 0 = no limit."`
	Bytes        int64    `key:"bytes" unit:"size" default:"0" doc:"Bytes of one sandbox in both directions, while it runs; counted anew when the server starts. 0 = no limit."`
	LogFile      int64    `key:"log_file" unit:"size" default:"16m" min:"65536" doc:"Size at which a new file of the log of connections is begun."`
	LogFiles     int64    `key:"log_files" default:"16" min:"2" doc:"Files of that log that are kept; the oldest goes first."`

	ProxyHost   string        `key:"proxy_host" doc:"Name or address by which sandboxes with a network of their own reach the proxy. Set: the proxy has a listener, too, which serves them alone, each with its token. The sandboxes of gVisor, the only back end today, have no such network, and nothing changes for them. Empty: no listener."`
	ProxyPort   int64         `key:"proxy_port" default:"15004" min:"1" doc:"Port of that listener."`
	ProxyListen string        `key:"proxy_listen" doc:"Address of this machine that the listener has. Empty: proxy_host if that is an address, else 127.0.0.1."`
	SigningKey  string        `key:"signing_key" secret:"true" min:"16" doc:"Key of the tokens by which sandboxes name themselves to the proxy: the bytes of the text. Not as a flag, which others on this machine can read. Empty: the one that was in force last; the first start makes one of 32 random bytes."`
	KeyOverlap  time.Duration `key:"signing_key_overlap" default:"24h" doc:"How long tokens of the key before stay good when signing_key changes. 0 = not at all."`
}

// Autocoder has the settings of autocoder's server that mean something here.
type Autocoder struct {
	LocalOnly     bool   `key:"local_only" default:"false" doc:"Refuse clients of other machines (403), whatever listen says."`
	AuthEnabled   bool   `key:"auth_enabled" default:"false" doc:"Let in by auth_type, too; API keys go on to be good. They act as owner default, root as its admin."`
	AuthType      string `key:"auth_type" default:"basic" allow:"basic,token" doc:"basic: the pairs below, as Authorization: Basic. token: api_key, as Authorization: Bearer or X-AUTOCODER-API-KEY."`
	AuthUser      string `key:"auth_user" doc:"User of a pair. A pair with an empty part lets nobody in."`
	AuthPass      string `key:"auth_pass" secret:"true" doc:"Its password."`
	RootUser      string `key:"root_user" default:"root" doc:"User of the pair that is an admin."`
	RootPass      string `key:"root_pass" secret:"true" doc:"Its password."`
	APIKey        string `key:"api_key" secret:"true" doc:"The token. Empty: there is none."`
	EnableMetrics bool   `key:"enable_metrics" default:"false" doc:"Serve /metrics of the main port without a key to all who reach it."`
}

// Secrets says how the secrets of owners are kept.
type Secrets struct {
	KeyFile  string `key:"key_file" doc:"File with the key that encrypts secrets: 64 hexadecimal digits, as openssl rand -hex 32 writes them; only its owner may read it (mode 0600). Older keys may stand on lines below it: what they encrypted is encrypted anew when the daemon starts. Empty: secrets.key in the data directory, made when it is needed."`
	PerOwner int64  `key:"per_owner" default:"100" min:"1" doc:"Secrets of one owner."`
}

// Audit bounds the audit log.
type Audit struct {
	MaxFile int64 `key:"max_file" unit:"size" default:"16m" min:"65536" doc:"Size at which a new file is begun."`
	Files   int64 `key:"files" default:"16" min:"2" doc:"Files that are kept; the oldest goes first."`
}

// Log is the daemon's log.
type Log struct {
	Level  string `key:"level" default:"info" allow:"debug,info,warn,error" doc:"Least important messages that are written."`
	Format string `key:"format" default:"text" allow:"text,json" doc:"One line of text or one JSON object per message."`
}
