#!/bin/sh
# A Slurm cluster on this machine, for tests: a controller and nodes of 4 CPUs, 4,000 MB and 2 pretended GPUs each, with
# the partitions main and low (low is preempted by main). It needs root and no systemd.
#
#   bench/slurm.sh install        installs Debian's packages
#   bench/slurm.sh up FOLDER [N]  starts N nodes (4); SLURM_CONF=FOLDER/slurm.conf then selects the cluster
#   bench/slurm.sh down FOLDER    ends all daemons and jobs
#
# BASE_PORT (16817) is the controller's port; node i has port BASE_PORT+i. SETTINGS are further lines of slurm.conf. The
# cluster ends with the process UNTIL, if one is given, and removes FOLDER.
set -e
usage() { sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 64; }
[ $# -ge 1 ] || usage
[ "$1" = install ] || [ $# -ge 2 ] || usage
base=${BASE_PORT:-16817}

case $1 in
install)
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge
	exit ;;
down)
	[ ! -e "$2/pid" ] || kill -9 "$(cat "$2/pid")" 2>/dev/null || true # --kill-child ends the namespace with it
	rm -f "$2/pid"
	exit ;;
up) ;;
*) usage ;;
esac

mkdir -p "$2/state"
box=$(cd "$2" && pwd) nodes=${3:-4} host=$(hostname -s)
umask 077
head -c 128 /dev/urandom >"$box/key"
for i in 0 1; do
	[ -e "$box/gpu$i" ] || mknod "$box/gpu$i" c 240 $i # slurmd requires devices; these have no driver
done
cat >"$box/slurm.conf" <<CONF
ClusterName=box
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$base
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$box/munge
StateSaveLocation=$box/state
SlurmdSpoolDir=$box/%n
SlurmctldPidFile=$box/ctld.pid
SlurmdPidFile=$box/%n/slurmd.pid
SlurmctldLogFile=$box/ctld.log
SlurmdLogFile=$box/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
SchedulerParameters=sched_interval=2,sched_min_interval=0,bf_interval=2
MinJobAge=5
KillWait=5
MessageTimeout=3
SlurmdTimeout=5
$SETTINGS
PartitionName=main Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF MaxTime=60
PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=2 MaxTime=60
CONF
: >"$box/gres.conf"
for i in $(seq "$nodes"); do
	mkdir -p "$box/n$i"
	echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((base + i)) CPUs=4 RealMemory=4000 Gres=gpu:2" \
		>>"$box/slurm.conf"
	echo "NodeName=n$i Name=gpu File=$box/gpu[0-1]" >>"$box/gres.conf"
done
cat >"$box/start" <<START
export SLURM_CONF=$box/slurm.conf
munged --force --key-file=$box/key --socket=$box/munge --pid-file=$box/munge.pid --log-file=$box/munge.log \
	--seed-file=$box/seed
slurmctld -c
for i in \$(seq $nodes); do slurmd -N n\$i; done
exec sleep infinity
START
chmod 755 "$box"
unshare --pid --fork --kill-child --mount-proc sh "$box/start" </dev/null >"$box/start.log" 2>&1 &
echo $! >"$box/pid"
[ -z "$UNTIL" ] || { # in the background, since its parent waits for this script only
	pid=$!
	(while kill -0 "$UNTIL" && kill -0 $pid; do sleep 1; done; kill -9 $pid; rm -rf "$box") </dev/null >/dev/null 2>&1 &
}
export SLURM_CONF="$box/slurm.conf"
for i in $(seq 300); do
	[ "$(sinfo -h -o '%t %D' -p main 2>/dev/null)" != "idle $nodes" ] || exit 0
	sleep 0.1
done
echo "the cluster has not started; its logs are in $box" >&2
cat "$box/start.log" >&2
exit 1
