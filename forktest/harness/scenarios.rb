# The built-in scenarios of cowaudit forktest. This file comes after ruby.rb, as one program with it; docs/method.md says what
# each scenario is for. One that a harness loads has sizes, and may have: prepare, for what the parent does between its last
# collection and the fork; worker events, and parent events.
module CowauditScenarios
  # What a scenario has when it has nothing of its own.
  class Scenario
    def prepare; end

    # Name => what to do in a worker.
    def events
      {}
    end

    # Name => what to do in the parent.
    def parent_events
      {}
    end
  end

  # Methods with call sites that were never called: the code of a large application, most of which never runs.
  class CallcacheCold < Scenario
    def initialize(sizes)
      methods, call_sites = sizes.fetch("methods"), sizes.fetch("call_sites")
      body = (0...call_sites).map { |i| "o.c#{i}" }.join(";")
      @target = Class.new { (0...call_sites).each { |i| class_eval("def c#{i}; end", "callcache", 1) } }.new if called?
      of = called? ? "self." : ""
      @spaces = (0...methods).each_slice(200).map do |numbers|
        space = Object.const_set("CallcacheCold#{numbers.first}", Module.new)
        space.module_eval(numbers.map { |n| "def #{of}m#{n}(o);#{body};end\n" }.join, "callcache-cold", 1)
        space
      end
    end

    private

    def called?
      false
    end

    def call_all
      @spaces.each { |space| space.singleton_methods(false).each { |name| space.public_send(name, @target) } }
    end
  end

  # All of them are called once, after the parent's last collection.
  class CallcacheWarm < CallcacheCold
    def prepare
      call_all
    end

    private

    def called?
      true
    end
  end

  # All of them are called once before the parent's last collections, and again in the worker.
  class InlineCache < CallcacheWarm
    def initialize(sizes)
      super
      call_all
    end

    def prepare; end

    def events
      { "first_requests" => -> { call_all }, "second_requests" => -> { call_all } }
    end
  end

  # Strings of which nobody knows yet whether their bytes are valid, as they come from a file; the answer is kept in the
  # string. They are not ASCII: force_encoding of 3.3 and later keeps the answer for those.
  class Coderange < Scenario
    def initialize(sizes)
      @strings = Array.new(sizes.fetch("strings")) { |i| "caf\u00e9 #{i} ".ljust(60, "-").b.force_encoding(Encoding::UTF_8) }
    end

    def events
      { "first_scan" => -> { scan }, "second_scan" => -> { scan } }
    end

    private

    def scan
      @strings.each(&:valid_encoding?)
    end
  end

  # The parent compacts before the first fork, makes and drops objects, and compacts again, as before the next fork: the
  # worker of the first fork loses what moves.
  class CompactEachFork < Scenario
    def initialize(sizes)
      @count = sizes.fetch("objects")
      @objects = Array.new(@count) { |i| "object #{i}" }
    end

    def prepare
      GC.compact
    end

    def parent_events
      { "parent_requests" => -> { serve }, "parent_compaction" => -> { GC.compact } }
    end

    private

    # Every tenth object is replaced, as a parent does that reads its configuration again.
    def serve
      0.step(@count - 1, 10) { |i| @objects[i] = "object #{i} of the next generation" }
      nil
    end
  end

  # Objects of which every tenth has a finalizer, and an exit handler that looks at all of them.
  class Exit < Scenario
    def initialize(sizes)
      @objects = Array.new(sizes.fetch("objects")) { |i| "object #{i}" }
      ending = proc {}
      0.step(@objects.size - 1, 10) { |i| ObjectSpace.define_finalizer(@objects[i], ending) }
      at_exit { @objects.each(&:hash) }
    end
  end

  ALL = { "callcache-cold" => CallcacheCold, "callcache-warm" => CallcacheWarm, "inline-cache" => InlineCache,
          "coderange" => Coderange, "compact-each-fork" => CompactEachFork, "exit" => Exit }.freeze
end
