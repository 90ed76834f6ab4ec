# The built-in scenarios of cowaudit forktest that are not about copies. Their collector runs by itself during the event, as it
# does in a server, and is off again when cowaudit looks.
module CowauditScenarios
  MIB = 1 << 20

  # What these scenarios have in common.
  class Neighbour < Scenario
    private

    def collecting
      GC.enable
      yield
    ensure
      GC.disable
    end

    def metric(name, value)
      CowauditHarness.metric(name, value)
    end

    # Survivors are old, and nothing is left to sweep.
    def settle
      4.times { GC.start(full_mark: true, immediate_sweep: true) }
    end
  end

  # A fragmented heap, then a loop of large strings that are dropped at once.
  class AllocDebt < Neighbour
    def initialize(sizes)
      @rounds = sizes.fetch("megabytes")
      all = Array.new(sizes.fetch("strings")) { |i| "string #{i} ".ljust(500, "-") }
      @kept = all.each_slice(2).map(&:first)
    end

    def events
      { "allocation" => -> { collecting { allocate } } }
    end

    private

    def allocate
      first = count = GC.count
      since = most = 0
      @rounds.times do
        "\0" * MIB
        since += MIB
        next if GC.count == count

        count = GC.count
        most = since if since > most
        since = 0
      end
      most = since if since > most
      metric("collections", count - first)
      metric("most_allocated_between_gcs_bytes", most)
    end
  end

  # Threads that allocate much and keep a tenth of it. The sizes are the same each time.
  class Fragmentation < Neighbour
    SMALLEST = 4_000
    LARGEST = 40_000

    def initialize(sizes)
      @threads, @strings = sizes.fetch("threads"), sizes.fetch("strings")
    end

    def events
      { "fill" => -> { collecting { fill } } }
    end

    private

    def fill
      @kept = Array.new(@threads) { |n| Thread.new { allocate(Random.new(n)) } }.map(&:value)
      settle
      metric("live_bytes", @kept.sum { |strings| strings.sum(&:bytesize) })
    end

    def allocate(random)
      kept = []
      @strings.times do |i|
        string = "x" * random.rand(SMALLEST..LARGEST)
        kept << string if (i % 10).zero?
        Thread.pass if (i % 100).zero?
      end
      kept
    end
  end

  # Rounds that each allocate a region and free it. Something small that was allocated meanwhile stays, as in a server.
  class Retention < Neighbour
    SMALL = 100_000 # below malloc's threshold for blocks that it maps one by one (128 KiB), too large for an old hole
    EVERY = 4
    BLOCK_MIB = 4 # more than what was freed while the application was loaded, which may have moved that threshold already

    def initialize(sizes)
      @blocks = sizes.fetch("megabytes") / BLOCK_MIB
      @small = []
    end

    def events
      %w[first_round second_round third_round].to_h { |name| [name, -> { collecting { round } }] }
    end

    private

    def round
      fill
      settle
      metric("kept_bytes", @small.sum(&:bytesize))
    end

    # A method of its own: its frame keeps nothing alive.
    def fill
      @region = Array.new(@blocks) do |i|
        block = "x" * (BLOCK_MIB * MIB)
        @small << "x" * SMALL if (i % EVERY).zero? || i == @blocks - 1
        block
      end
      @region.clear
      @region = nil
    end
  end

  # Requests that make hashes and drop them; later each keeps one.
  class LeakOrPlateau < Neighbour
    def initialize(sizes)
      @requests, @hashes = sizes.fetch("requests"), sizes.fetch("hashes")
      @leaked = []
    end

    def events
      parts = (1..4).to_a
      parts.to_h { |i| ["churn_#{i}", -> { collecting { serve(false) } }] }
           .merge(parts.to_h { |i| ["leak_#{i}", -> { collecting { serve(true) } }] })
    end

    private

    def serve(leaks)
      @requests.times do |i|
        answer = Array.new(@hashes) { |n| { id: n, request: i, name: "name #{n}" } }
        @leaked << answer.last if leaks
      end
      settle
      metric("requests", @requests)
    end
  end

  NEIGHBOURS = { "alloc-debt" => AllocDebt, "fragmentation" => Fragmentation, "retention" => Retention,
                 "leak-or-plateau" => LeakOrPlateau }.freeze
end
