# frozen_string_literal: true

require_relative "helper"
require_relative "scenario_player"

# Every scenario that all languages share (tests/scenarios).
class TestScenarios < Minitest::Test
  FILE = ENV.fetch("LIMITER_SCENARIOS", "#{Helper::ROOT}/tests/scenarios/scenarios.json")

  JSON.parse(File.read(FILE)).fetch("scenarios").each do |scenario|
    define_method(:"test_#{scenario.fetch('name')}") { ScenarioPlayer.new(self, scenario).play }
  end
end
