"""What operators talk to: the admin interface, served by aiohttp."""
